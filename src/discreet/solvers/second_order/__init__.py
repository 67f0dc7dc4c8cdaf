"""Solvers that release a second moment first: noisy Newton steps for classification and regression."""
