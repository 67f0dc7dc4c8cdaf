"""Solvers that release noisy gradients and second moments."""
