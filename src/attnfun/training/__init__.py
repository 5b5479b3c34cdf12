"""`train`, and what is asked of its networks: one file a kind of network, `models/` for what comes back, `compare`."""
