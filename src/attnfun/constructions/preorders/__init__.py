"""Constructions for preorders: heads that pick the lexicographic best, and utilities on a net."""
