"""Networks that match: pairs (`match2`), triples (`match3`), averages over named tokens (`sparse_average`)."""
