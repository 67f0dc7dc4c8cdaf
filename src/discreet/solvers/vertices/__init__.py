"""Solvers that choose vertices of a set."""
