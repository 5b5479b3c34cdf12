"""What can be said of a model whose heads attend over tokens: there are no fixed keys to look at."""

from typing import Any

import numpy as np

from attnfun.diagnosis.rounding import DTYPES
from attnfun.diagnosis.subject import Subject


def subjects(model: Any, _eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """Remarks and no subject, for every kind whose weights are, or hold, a network on tokens."""
    network = getattr(model.weights, "network", model.weights)
    plain, units = network.attention, sum(network.units)
    largest = max((float(np.abs(array).max()) for head in plain.heads for array in head.arrays.values()), default=0.0)
    kept = DTYPES[plain.dtype].roundoff * largest
    remarks = [
        f"Its heads attend over the tokens of the prompt: keys are data, there are no fixed ones to diagnose; "
        f"layers: {len(plain.layers)}, weights up to {largest:.3g}, kept by {plain.dtype} within {kept:.1g}."
    ]
    if units:
        remarks.append(f"{units:,} ReLU units stand between its layers, and are not looked at.")
    return f"a network on tokens ({type(model).__name__})", [], remarks
