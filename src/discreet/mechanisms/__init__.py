"""Mechanisms: all code that draws noise, each with its sensitivity, its event and its exact sampler."""

from discreet.mechanisms.additive import (
    GaussianMechanism,
    GaussianNoise,
    LaplaceMechanism,
    LaplaceNoise,
    SymmetricGaussianMechanism,
)
from discreet.mechanisms.gamma_norm import GammaNormMechanism, GammaNormNoise
from discreet.mechanisms.gibbs import GibbsMechanism
from discreet.mechanisms.level_selection import LeveledSelection
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.mechanisms.sparse_vector import SparseVector, StableRelease
from discreet.mechanisms.tree import TreeMechanism
from discreet.mechanisms.voting import ConfidentPlurality, NoisyPlurality

__all__ = [
    "ConfidentPlurality",
    "Entropy",
    "ExponentialMechanism",
    "GammaNormMechanism",
    "GammaNormNoise",
    "GaussianMechanism",
    "GaussianNoise",
    "GibbsMechanism",
    "LaplaceMechanism",
    "LaplaceNoise",
    "LaplaceNoisyMax",
    "LeveledSelection",
    "NoisyPlurality",
    "SparseVector",
    "StableRelease",
    "SymmetricGaussianMechanism",
    "TreeMechanism",
    "fresh_entropy",
    "insecure_noise",
]
