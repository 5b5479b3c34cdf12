"""What experiments use besides targets, networks and verbs, which have public names of their own.

| what | for instance |
| --- | --- |
| parts of constructions, to be changed one at a time | `af.parts.build_grid`, `af.parts.curve_keys` |
| what judges them | `af.parts.prove` for functions, `af.parts.error_lower`, `af.parts.measured_error` |
| a file that is written whole or not at all | `af.parts.write_whole` |
| how a missing module is installed | `af.parts.how_to_install` |
| a bound in words, rounded to the safe side | `af.parts.at_most`, `af.parts.at_least` |
"""

from attnfun.errors import how_to_install
from attnfun.files import write_whole
from attnfun.kinds.average.build import curve_keys
from attnfun.kinds.average.weights import curve_query, least_norm_query
from attnfun.kinds.function.build import Request
from attnfun.kinds.function.build.partition import Grid, build_grid
from attnfun.kinds.function.build.relu_network import interpolated
from attnfun.kinds.function.interpolation import measured_error
from attnfun.kinds.function.prove import prove
from attnfun.kinds.matching.build_pairs import gap as pair_gap
from attnfun.kinds.matching.build_pairs import null_logit
from attnfun.kinds.neighbours.build.majority_vote import accuracy as vote_accuracy
from attnfun.kinds.neighbours.build.random_heads import draw as random_directions
from attnfun.kinds.neighbours.build.random_heads import overlap
from attnfun.kinds.neighbours.sphere import sign_coefficients, uniform_points
from attnfun.kinds.relation.definiteness import checked as checked_witness
from attnfun.kinds.relation.rank import error_lower, section
from attnfun.kinds.sequence.examples import example as sequence_example
from attnfun.kinds.sequence.examples import relu_network
from attnfun.kinds.sequence.network import embedded, sequence_embedding
from attnfun.language.circle import circle
from attnfun.language.numbers import at_least, at_most

__all__ = ["Grid", "Request", "build_grid", "interpolated", "measured_error", "prove", "sequence_example"]
__all__ += ["relu_network", "embedded", "sequence_embedding", "error_lower", "section", "checked_witness", "curve_keys"]
__all__ += ["curve_query", "least_norm_query", "circle", "pair_gap", "null_logit", "vote_accuracy", "overlap"]
__all__ += [
    "random_directions",
    "sign_coefficients",
    "uniform_points",
    "write_whole",
    "how_to_install",
    "at_least",
    "at_most",
]
