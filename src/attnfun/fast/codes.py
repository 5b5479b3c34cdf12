"""What the numbers of a tape mean: read by `tape.py`, which writes tapes, and by `kernels.py`, which needs numba."""

FORM, KEYS, FACTOR, WINDOW, LATTICE = range(5)
SAFE = {"float64": 300.0, "float32": 40.0}
