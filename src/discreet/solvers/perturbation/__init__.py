"""Solvers that perturb the objective or its minimizer."""
