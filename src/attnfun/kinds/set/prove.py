"""Networks on sets: the bound of method *sequence* for the sequence map of their form, witnessed at sets.

The form is the same function as the target (`pattern.py`), at every token and for all tokens of its box, so a bound of
the sequence network's error covers every set. Its witness may be tokens that are no pairs of any set, so the lower end
is looked for at sets, as the first token has it.
"""

import numpy as np

from attnfun.certify.verdict import Proof, undecided
from attnfun.errors import AttnfunError
from attnfun.kinds.sequence.network import SequenceNetwork
from attnfun.kinds.sequence.prove import bounded, probes, seen, witnessed
from attnfun.kinds.set.network import SetNetwork
from attnfun.kinds.set.pattern import sequence_map
from attnfun.kinds.set.target import SetFunction, pair_tokens
from attnfun.search import Goal, Say

_PROBES = 500


def proof(target: SetFunction, weights: SetNetwork, goal: Goal, say: Say) -> Proof:
    """What is proved of weights as an approximation of `target`, for every set of points of its box."""
    network = weights.sequence
    if not isinstance(network, SequenceNetwork):
        return undecided("no method for trained networks of this kind")
    try:
        form = sequence_map(target, weights.form)
    except AttnfunError as why:
        return undecided(why)
    count = max(20, min(_PROBES, _PROBES * 64**2 // form.tokens**2))
    sets = probes(target, count, np.random.default_rng(0))
    low, at = witnessed(network, form, pair_tokens(sets) if weights.pairs else sets, only=0)
    witness = None
    if at is not None:
        elements = at[:: target.points, : target.box.dim] if weights.pairs else at
        witness = tuple(float(v) for v in elements.ravel())
    return seen(bounded(form, network, goal.eps, say), low, witness, "a set")
