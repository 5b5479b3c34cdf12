"""Attention over a table of keys by a utility: the kind behind `retrieve`."""

from attnfun.kinds import Command, Kind

KIND = Kind(
    "retrieval",
    target="attnfun.kinds.retrieval.target:Lookup",
    weights=(
        "attnfun.kinds.retrieval.weights:RetrievalWeights",
        "attnfun.kinds.retrieval.weights:TrainedHead",
    ),
    view="attnfun.kinds.retrieval.view:Retrieval",
    prover="attnfun.kinds.retrieval.prove:proof",
    words="attnfun.kinds.retrieval.words",
    lesson="attnfun.kinds.retrieval.words:lesson",
    subjects="attnfun.kinds.retrieval.words:subjects",
    commands=(
        Command(
            "retrieve",
            verb="attnfun.kinds.retrieval.verb:retrieve",
            panel="Relations",
            summary="An attention head that picks the best key of a table, with what is proved for every query.",
            examples=(
                "attnfun retrieve 'exp(-2*(x-y)**2)' --left x=0:1 --right y=0:1 --keys docs.csv --eps 1e-4",
                "attnfun retrieve 'x*y - y**2/2' --left x=0:1 --right y=0:1 --keys docs.csv --eps 1e-6 -o head",
                "attnfun retrieve 'exp(x*y)' --left x=0:1 --right y=0:1 --keys docs.csv --eps 1e-6 --beta 200 --json",
            ),
            more="For every query: how far its weights may be from the softmax of the exact utilities (total "
            "variation), its output from that softmax's, and how much utility its pick may lose. For queries whose "
            "best key leads by a margin: the weight of that key. On a sample of queries: margins, and how probable a "
            "failure is, with confidence.",
            arguments=("utility",),
            helps={
                "utility": "A utility of query (left) and key (right).",
                "eps": "How far scores may be off.",
                "keys": "CSV: a header with the right variables in any order; a column 'id' names keys.",
                "values": "CSV of what the head hands out, a row per key; else the keys themselves.",
                "queries": "CSV of queries to find margins at, or how many uniform ones.",
                "beta": "Inverse temperature; else what the median margin needs.",
                "delta": "The winner shall have a weight of 1 − delta.",
                "confidence": "Of the failure probability's interval.",
                "symmetric": "One tower for queries and keys.",
                "signed": "With --symmetric: allow signs.",
                "method": "auto, chebyshev, tensor or cholesky.",
                "features_only": "Polynomial features in place of a tower; the result says so.",
                "seed": "Of the uniform queries.",
            },
            prepare="attnfun.kinds.retrieval.words:counted",
        ),
    ),
)
