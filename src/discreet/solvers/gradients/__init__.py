"""Solvers that release noisy gradients."""
