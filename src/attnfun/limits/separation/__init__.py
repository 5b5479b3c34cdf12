"""Separations: what rank, heads and pairs cannot do, counted by spherical harmonics, and what does as well."""
