"""Solvers: each plans from public facts and runs where data meets noise. Importing the package registers them all."""

from discreet.solvers import (
    auto,
    discriminant,
    exponential,
    frank_wolfe,
    frank_wolfe_laplace,
    localized,
    mirror_descent,
    newton,
    noisy_gradient,
    noisy_sgd,
    objective_perturbation,
    output_perturbation,
    permutation_sgd,
    printed_gradients,
    simplex,
    sufficient_statistics,
)

__all__ = [
    "auto",
    "discriminant",
    "exponential",
    "frank_wolfe",
    "frank_wolfe_laplace",
    "localized",
    "mirror_descent",
    "newton",
    "noisy_gradient",
    "noisy_sgd",
    "objective_perturbation",
    "output_perturbation",
    "permutation_sgd",
    "printed_gradients",
    "simplex",
    "sufficient_statistics",
]
