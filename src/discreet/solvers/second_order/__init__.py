"""Solvers that look at second moments first: noisy Newton steps for classification and regression."""
