"""The networks that match, written from their few numbers.

`build_pairs` and `build_triples` choose the numbers; `prove` reads them off stored weights, writes the network that has
them, and holds every stored entry against it. So the theorem of `prove` is about what is written here.
"""

from attnfun.kinds.matching.encoding import FLAGGED, PLAIN, TRIPLES
from attnfun.network import TokenHead, TokenLayer, TokenNetwork, rounded
from attnfun.network.named_coordinates import Entries, Stream

_FOUND = {("found", 0): 1.0}


def pairs(a: float, b: float, dtype: str, twins: tuple[float, ...] = ()) -> TokenNetwork:
    """Logits a cos(2π(x_i + x_j)/M), and b for the null token. `twins`, where j = i does not count: the lift of the
    null token that flagged ones see, the logit and the odds of the second head, its stretch and its shift.
    """
    value = {("one", 0): 1.0, ("null", 0): -1.0}
    query = {("cos", 0): 1.0, ("sin", 1): 1.0, ("one", 2): 1.0}
    key = {("cos", 0): a, ("sin", 1): -a, ("null", 2): b}
    null = {("one", 0): 1.0, ("null", 0): 1.0}
    if not twins:
        stream = Stream(0, "", PLAIN)
        return _network(stream, [stream.head("pairs", dtype, query, key, value, _FOUND)], null, _FOUND, dtype)
    lift, high, odds, stretch, shift = twins
    stream, flags = Stream(0, "", FLAGGED), {("zero", 3): 1.0, ("half", 3): 1.0}
    same = {("zero", 0): 1.0, ("half", 1): 1.0, ("one", 2): 1.0}
    counted = {("zero", 0): high, ("half", 1): high, ("null", 2): high, ("null", 3): odds}
    heads = [
        stream.head("pairs", dtype, query | flags, key | {("null", 3): lift}, value, _FOUND),
        stream.head("twins", dtype, same | flags, counted, value, {("found", 0): stretch}),
    ]
    return _network(stream, heads, null, _FOUND | {("zero", 0): -shift, ("half", 0): -shift}, dtype)


def triples(a: float, b: float, dtype: str, shut: float) -> TokenNetwork:
    """The same with a key token for each pair; logits of single tokens lie `shut` below 0."""
    stream = Stream(0, "", TRIPLES)
    query = {("cos", 0): 1.0, ("sin", 1): 1.0, ("one", 2): 1.0}
    key = {("pair cos", 0): a, ("pair sin", 1): -a, ("one", 2): -shut, ("pair", 2): shut, ("null", 2): b}
    head = stream.head("triples", dtype, query, key, {("pair", 0): 1.0}, _FOUND)
    return _network(stream, [head], {("null", 0): 1.0}, _FOUND, dtype)


def _network(stream: Stream, heads: list[TokenHead], null: Entries, readout: Entries, dtype: str) -> TokenNetwork:
    token, read = stream.matrix(1, null).T, rounded(stream.matrix(1, readout), dtype)
    return TokenNetwork(stream.names, (TokenLayer(tuple(heads)),), token, read, ("match",), dtype)
