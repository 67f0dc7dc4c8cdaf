"""Principal components: the directions in which bounded rows vary most, from noisy second moments or products.

Three ways, each with Gaussian noise:

* "svd" releases the second moment sum_i v_i v_i^T once, with the sum of the rows, and takes its eigenvectors;
* "power" releases products sum_i v_i (v_i^T V) with an orthonormal block V, T times, V <- orth(product);
* "oja" releases the same products, V <- orth(V + step product).

Whatever is computed from these releases is post-processing. Proofs: docs/proofs/principal-components.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.linalg

from discreet import _checks
from discreet._checks import ParameterError, Setting
from discreet._typing import Array, Progress
from discreet.mechanisms import recording
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import SOURCE, Entropy
from discreet.privacy.accounting.calibration import Part, multiplier, split_unit
from discreet.privacy.guarantee import (
    SLACK,
    Guarantee,
    Neighboring,
    Sensitivity,
    acute_sum_sensitivity,
    sum_sensitivity,
)
from discreet.records.base import Records
from discreet.records.bounds import gamma, worst_additions
from discreet.records.clipped_rows import one_blas_thread
from discreet.solvers import base
from discreet.solvers.second_order.coordinates import MOST_FEATURES, MomentMechanism

METHODS = ("auto", "svd", "power", "oja")
_MEAN_WEIGHT = 0.5  # of the row bound, for the sum of the rows beside their second moment
_MEAN_SHARE = 0.1  # of the squared Gaussian-DP parameter, for the sum of the rows beside products
_EDGE_MARGIN = 1.02  # an eigenvalue must exceed the edge of the noise by this much to be believed
_DIAGONAL_ROUNDS = 6
_LARGE = 2000  # from here on, fewer rounds and looser eigenvectors: the noise is far larger


# -- eigenvectors under noise ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spikes:
    """Directions that rise above the noise.

    Attributes
    ----------
    vectors : orthonormal columns.
    values : eigenvalues with the noise's share removed, already multiplied by how well a vector points.
    overlaps : squared cosine between each vector and the true one, estimated.
    """

    vectors: Array
    values: Array
    overlaps: Array


def without_noise(found: Array, edge: float) -> tuple[Array, Array]:
    """What noisy eigenvalues above the noise's ``edge`` were without it, and the squared cosines of their vectors.

    For a spike l under noise of edge e, the noisy eigenvalue is l + (e/2)^2 / l and the squared cosine
    1 - (e/2)^2 / l^2 (Benaych-Georges and Nadakuditi, 2011); both are inverted here.
    """
    true = (found + np.sqrt(np.maximum(found**2 - edge**2, 0.0))) / 2
    return true, 1 - (edge / 2) ** 2 / np.maximum(true, 1e-300) ** 2


def spikes(
    noisy: Array, stddev: float, rank: int, *, unit: float = 1.0, keep_diagonal: bool = False
) -> Spikes:
    """Eigenpairs above the semicircle's edge sqrt(2) stddev sqrt(n), corrected for noise.

    Eigenvalues are given in units of ``unit``. Unless it is kept, the diagonal of ``noisy`` is overwritten.
    """
    n = len(noisy)
    edge = math.sqrt(2.0 * n) * stddev
    diagonal = np.diag(noisy).copy() if keep_diagonal else np.zeros(n)
    with one_blas_thread:
        for _ in range(1 if keep_diagonal else 2 if n > _LARGE else _DIAGONAL_ROUNDS):
            np.fill_diagonal(noisy, diagonal)
            found, vectors = largest(noisy, min(rank, n))
            above = found > max(_EDGE_MARGIN * edge, 1e-12)
            found, vectors = found[above], vectors[:, above]
            true, overlaps = without_noise(found, edge)
            values = true * overlaps
            previous, diagonal = diagonal, vectors**2 @ values
            if not len(found) or np.abs(diagonal - previous).max() < 1e-3 * max(diagonal.max(), 1e-300):
                break
    return Spikes(vectors, unit * values, overlaps)


def largest(matrix: Array, count: int) -> tuple[Array, Array]:
    """Algebraically largest eigenpairs, in decreasing order."""
    n = len(matrix)
    if n > 600 and count < n // 10:
        from scipy.sparse.linalg import eigsh

        generator = np.random.default_rng(0)  # the matrix is released: any start is post-processing
        start = generator.normal(size=n)
        values, vectors = eigsh(matrix, k=count, which="LA", v0=start, tol=1e-3 if n > _LARGE else 1e-8)
    else:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[n - count, n - 1])
    order = np.argsort(values)[::-1]
    return values[order], vectors[:, order]


def block_iteration(
    block: Array, noisy_product: Callable[[int, Array], Array], rounds: int, step: float | None = None
) -> Array:
    """The last of ``rounds`` noisy products, each with an orthonormal basis of the one before.

    With a ``step`` by Oja's rule: each but the last product is added to its block, times the step.
    """
    noisy = block
    for t in range(rounds):
        noisy = noisy_product(t, block)
        moved = noisy if step is None or t == rounds - 1 else block + step * noisy
        with one_blas_thread:
            block = np.linalg.qr(moved)[0]
    return noisy


def block_spikes(noisy: Array, floor: float) -> tuple[Array, Array, Array]:
    """Directions of a noisy product, their lengths without noise, and squared cosines with the true ones.

    ``floor`` is the length that noise alone gives to a column. Lengths below 1.5 times that are 0.
    """
    left, lengths, _ = np.linalg.svd(noisy, full_matrices=False)
    seen = lengths > 1.5 * floor
    true = np.where(seen, np.sqrt(np.maximum(lengths**2 - floor**2, 0.0)), 0.0)
    return left, true, np.where(seen, true**2 / np.maximum(lengths, 1e-300) ** 2, 0.0)


# -- the solver --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComponentsProblem:
    """Public facts: records, columns, the bound on rows, wanted directions, and whether the mean is taken off."""

    n_samples: int
    n_features: int
    feature_norm: float
    n_components: int
    center: bool


@dataclass(frozen=True)
class ComponentsRelease:
    """What a run gives out.

    Attributes
    ----------
    mean : of the clipped rows; zeros where it was not asked for.
    components : orthonormal rows.
    variances : along them, corrected for noise.
    total : variance in all directions; None where nothing that was released tells it.
    secure : whether the noise was secret.
    """

    mean: Array
    components: Array
    variances: Array
    total: float | None
    secure: bool


@dataclass(frozen=True)
class NoisyComponents:
    """Principal components with Gaussian noise; every default follows from public facts.

    Parameters
    ----------
    method : "svd", "power", "oja", or "auto": svd for at most 4000 columns, power beyond.
    n_iterations : number of noisy products of "power" and "oja".
    learning_rate : step of "oja" on the mean product; None: that at which noise alone would grow the block by its size.

    Privacy
    -------
    (epsilon, delta) with delta > 0, every relation; the mean is known only where the number of rows is public.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang (2014) for the second moment; Hardt and Price (2014) for the power method; Thakkar
    (2019), Algorithm 14, for Oja's rule.
    """

    name: ClassVar[str] = "components"
    method: str = "auto"
    n_iterations: int = 5
    learning_rate: float | None = None

    def plan(self, problem: ComponentsProblem, guarantee: Guarantee) -> ComponentsPlan:
        """The least noise that meets the guarantee."""
        if guarantee.delta == 0:
            raise ParameterError(
                "delta",
                "must be greater than 0: components are found under Gaussian noise",
                "for instance 1 / n**2",
            )
        if problem.center and not guarantee.neighboring.size_is_public:
            raise ParameterError(
                "center",
                "must be False under add-remove-one: to take off the mean, the number of rows must be known",
                Setting("center", False, purpose="after taking public constants off the columns"),
                Setting("neighboring", "replace-one", "zero-out"),
            )
        method = _checks.choice("method", self.method, METHODS)
        if method == "auto":
            method = "svd" if problem.n_features <= MOST_FEATURES else "power"
        steps = 0 if method == "svd" else _checks.count("n_iterations", self.n_iterations)
        rate = None
        if self.learning_rate is not None:
            rate = _checks.real("learning_rate", self.learning_rate, above=0)
        unit = split_unit(_parts(problem, steps), guarantee)
        return ComponentsPlan(problem, guarantee, method, steps, unit, rate)


def _parts(problem: ComponentsProblem, steps: int) -> list[Part]:
    """Return how the budget is split: one release of everything, or a mean and products."""
    p, k = problem.n_features, problem.n_components
    if not steps:
        return [Part(1.0, p * (p + 1) // 2 + p * problem.center)]
    share = _MEAN_SHARE if problem.center else 0.0
    return [*([Part(share, p)] if share else []), Part(1 - share, p * k, steps)]


def product_rounding(n_samples: int, n_features: int, n_columns: int, feature_norm: float) -> float:
    """A proved bound on the Frobenius error of a computed sum_i v_i (v_i^T V), V orthonormal up to rounding."""
    each = gamma(n_features + 4) + gamma(worst_additions(n_samples) + 4)
    return 1.02 * n_samples * feature_norm**2 * math.sqrt(n_columns) * each


@dataclass(frozen=True)
class ComponentsPlan(base.Plan):
    """A calibrated run."""

    problem: ComponentsProblem  # type: ignore[assignment]  # rows without a loss
    method: str
    n_iterations: int
    unit: float
    chosen_rate: float | None = None

    def __post_init__(self) -> None:
        _ = self.releases  # everything that can fail does so now, before a charge

    sums_only = True

    @property
    def _relation(self) -> Neighboring:
        return self.record_guarantee.neighboring

    @cached_property
    def moments(self) -> MomentMechanism:
        """The release of the second moment and, if rows are centered, of their sum."""
        problem = self.problem
        return MomentMechanism(
            problem.n_samples, problem.n_features, problem.feature_norm, float(problem.center),
            _MEAN_WEIGHT * problem.feature_norm, self._relation, self.unit,
        )  # fmt: skip

    @cached_property
    def total(self) -> GaussianMechanism:
        """The release of the sum of the rows, beside products."""
        problem = self.problem
        exact = sum_sensitivity(problem.feature_norm, self._relation).value
        rounding = (
            1.01 * problem.n_samples * problem.feature_norm * gamma(worst_additions(problem.n_samples) + 4)
        )
        sensitivity = Sensitivity((exact + 2 * rounding) * SLACK)
        return GaussianMechanism(sensitivity, multiplier(self.unit, _MEAN_SHARE), problem.n_features)

    @cached_property
    def product(self) -> GaussianMechanism:
        """The release of the product with a block."""
        problem, share = self.problem, 1 - _MEAN_SHARE * self.problem.center
        p, k, norm = problem.n_features, problem.n_components, problem.feature_norm
        # A computed basis is orthonormal up to rounding only.
        exact = acute_sum_sensitivity(norm**2, self._relation).value * (1 + p * k * 2.0**-47)
        value = (exact + 2 * product_rounding(problem.n_samples, p, k, norm)) * SLACK
        noise = multiplier(self.unit, share / self.n_iterations)
        return GaussianMechanism(Sensitivity(value), noise, p * k)

    @cached_property
    def releases(self) -> tuple[base.PlannedRelease, ...]:
        """Everything that a run releases, in order."""
        if self.method == "svd":
            return (base.PlannedRelease(self.moments, "second moment"),)
        products = base.PlannedRelease(self.product, "products", self.n_iterations)
        return (
            (base.PlannedRelease(self.total, "sum of rows"), products) if self.problem.center else (products,)
        )

    @property
    def how(self) -> str:
        """How the noise is added, in words."""
        mean = " and on the sum of the rows" if self.problem.center else ""
        if self.method == "svd":
            return f"Gaussian noise on the second moment{mean}"
        return f"Gaussian noise on {self.n_iterations} products with a block ({self.method}){mean}"

    @property
    def proof(self) -> str:
        """The theorem behind the guarantee."""
        bound = "of second moments (Theorem 1)" if self.method == "svd" else "of products (Theorem 2)"
        return f"sensitivity {bound}, exact composition of Gaussian releases; docs/proofs/principal-components.md"

    @property
    def numbers(self) -> Mapping[str, float | str]:
        """The public numbers of the run."""
        if self.method == "svd":
            gaussian = self.moments.gaussian
            noise = {
                "second moment noise stddev (sum scale)": gaussian.stddev,
                "sensitivity": gaussian.sensitivity.value,
            }
        else:
            noise = {
                "product noise stddev (sum scale)": self.product.stddev,
                "sensitivity": self.product.sensitivity.value,
                "noisy products": float(self.n_iterations),
            }
        return {
            **noise,
            "directions": float(self.problem.n_components),
            "sampler": f"exact discrete Gaussian, {SOURCE}",
        }

    @property
    def sizes(self) -> Mapping[str, str]:
        """Public sizes, as printed."""
        problem = self.problem
        return {
            "records x columns": f"{problem.n_samples} x {problem.n_features}",
            "row norm": f"{problem.feature_norm:g}",
        }

    def run(  # type: ignore[override]  # directions, not coefficients
        self, records: list[Records], entropy: Entropy, progress: Progress | None = None
    ) -> ComponentsRelease:
        """Release moments or products; the rest is post-processing."""
        found = self._by_moments if self.method == "svd" else self._by_products
        return found(records[0], entropy)

    def _by_moments(self, records: Records, entropy: Entropy) -> ComponentsRelease:
        problem, n = self.problem, self.problem.n_samples
        noisy = self.moments.release(records, entropy)
        mean = noisy.cross / n
        covariance = noisy.second / n - np.outer(mean, mean)
        with one_blas_thread:
            values, vectors = largest(covariance, problem.n_components)
        edge = noisy.matrix_noise / n
        return ComponentsRelease(
            mean,
            _signed(vectors.T),
            _denoised_variances(values, edge),
            float(np.trace(covariance)),
            entropy.secure,
        )

    def _by_products(self, records: Records, entropy: Entropy) -> ComponentsRelease:
        problem, n = self.problem, self.problem.n_samples
        p, k = problem.n_features, problem.n_components
        mean = np.zeros(p)
        if problem.center:
            mean = self.total.release(records.weighted_sum(np.ones(records.n_samples)), entropy) / n

        def noisy_product(step: int, block: Array) -> Array:
            exact = records.sum_rows(products, block)
            noisy = self.product.release(exact.ravel(), entropy).reshape(block.shape)
            recording.step(step + 1, self.n_iterations)
            return np.asarray(noisy / n - np.outer(mean, mean @ block))

        # A public start; where it points does not matter for privacy.
        generator = np.random.default_rng(0)  # any start is post-processing
        start = np.linalg.qr(generator.normal(size=(p, k)))[0]
        noisy = block_iteration(start, noisy_product, self.n_iterations, self._rate)
        left, lengths, overlaps = block_spikes(noisy, self.product.stddev * math.sqrt(p) / n)
        return ComponentsRelease(mean, _signed(left.T), lengths * overlaps, None, entropy.secure)

    @property
    def _rate(self) -> float | None:
        """The step of Oja's rule on the mean product."""
        if self.method == "power":
            return None
        noise = self.product.stddev * math.sqrt(self.problem.n_features) / self.problem.n_samples
        return 1 / (self.n_iterations * noise) if self.chosen_rate is None else self.chosen_rate


def products(records: Records, block: Array) -> Array:
    """sum_i v_i (v_i^T V), column by column."""
    rows = records.in_memory()
    block = np.ascontiguousarray(block)
    return np.column_stack([rows.weighted_sum(rows.raw_predictions(column)) for column in block.T])


def _denoised_variances(values: Array, edge: float) -> Array:
    """Variances along noisy eigenvectors, with the noise's share removed; 0 where noise alone could be as large."""
    true, overlaps = without_noise(values, edge)
    return np.where(values > _EDGE_MARGIN * edge, true * overlaps, 0.0)


def _signed(components: Array) -> Array:
    """Rows whose largest entry is positive, as eigenvectors have no sign of their own."""
    places = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), places])
    return np.ascontiguousarray(components * np.where(signs == 0, 1.0, signs)[:, None])
