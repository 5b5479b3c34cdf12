"""Tensor Mercer: the features of a product of relations are products of the factors' features.

Statement: if g = Π_k g_k and g_k ≈ Σ_c p_kc q_kc, then g ≈ Σ_c Π_k p_{k c_k} Π_k q_{k c_k}; the largest
products are kept.
Source: eigenpairs of a product kernel multiply (Mercer); sup norms instead of eigenvalues decide here, because the
error is measured in the sup norm: Σ over what is dropped of Π_k sup|p_kc| sup|q_kc|.
Size: the number of products kept, in any number of variables; only the factors are stored.
Failure mode: factors of slowly decaying spectra; past 4·10^7 products the table is refused.
"""

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.relation.features import Index
from attnfun.network.head import Array

MOST_PRODUCTS = 40_000_000


def ordered_products(weights: list[Array], signs: list[Array] | None, most: int) -> Index:
    """(r, blocks): the `most` products of largest weight, largest first; products of sign −1 are left out if given."""
    if np.prod([float(len(w)) for w in weights]) > MOST_PRODUCTS:
        raise Infeasible(f"tensor: {' × '.join(str(len(w)) for w in weights)} products of features are out of reach")
    table = weights[0]
    for w in weights[1:]:
        with np.errstate(over="ignore"):
            table = np.minimum(np.multiply.outer(table, w), 1e300)  # an order is asked for, not a bound
    if signs is not None:
        side = signs[0]
        for s in signs[1:]:
            side = np.multiply.outer(side, s)
        table = np.where(side > 0, table, 0.0)
    flat = table.ravel()
    if not flat.any():  # the relation 0, for which any one product stands
        flat = np.ones(1) if signs is None else (side > 0).ravel().astype(np.float64)
        most = 1
    most = min(most, int(np.count_nonzero(flat)))
    order = np.argpartition(-flat, most - 1)[:most] if most < len(flat) else np.arange(len(flat))
    order = order[np.argsort(-flat[order], kind="stable")][:most]
    return np.stack(np.unravel_index(order, table.shape), axis=1).astype(np.int64)
