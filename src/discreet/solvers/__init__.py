"""Solvers. Each plans from public facts, then runs on private data. Importing the package registers all of them."""

from discreet.solvers.auto import AutomaticChoice
from discreet.solvers.base import Plan, Release, Solver, names, resolve
from discreet.solvers.class_sums.discriminant import NoisyDiscriminant
from discreet.solvers.class_sums.refocused import RefocusedSums
from discreet.solvers.gradients.mirror_descent import MirrorDescent
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent, NoisySGD
from discreet.solvers.gradients.psgd import DissertationPSGD, PermutationSGD
from discreet.solvers.papers import (
    DissertationDescent,
    DissertationFrankWolfe,
    TalwarFrankWolfe,
    TalwarMirrorDescent,
)
from discreet.solvers.perturbation.objective import DissertationRule, ObjectivePerturbation
from discreet.solvers.perturbation.output import JainThakurtaRule, OutputPerturbation
from discreet.solvers.sampling.exponential import ExponentialSampling
from discreet.solvers.sampling.localized import Localized
from discreet.solvers.second_order.newton import NoisyNewton
from discreet.solvers.statistics import SufficientStatistics
from discreet.solvers.vertices.frank_wolfe import FrankWolfe
from discreet.solvers.vertices.simplex_sampling import SimplexSampling

__all__ = [
    "AutomaticChoice",
    "DissertationDescent",
    "DissertationFrankWolfe",
    "DissertationPSGD",
    "DissertationRule",
    "ExponentialSampling",
    "FrankWolfe",
    "JainThakurtaRule",
    "Localized",
    "MirrorDescent",
    "NoisyDiscriminant",
    "NoisyGradientDescent",
    "NoisyNewton",
    "NoisySGD",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PermutationSGD",
    "Plan",
    "RefocusedSums",
    "Release",
    "SimplexSampling",
    "Solver",
    "SufficientStatistics",
    "TalwarFrankWolfe",
    "TalwarMirrorDescent",
    "names",
    "resolve",
]
