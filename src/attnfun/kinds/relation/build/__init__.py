"""Constructions for relations: features from tables of Chebyshev coefficients, one construction a file."""
