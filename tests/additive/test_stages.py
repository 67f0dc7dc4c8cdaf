"""Stages: sensitivity of residual sums with their companion, their limit without noise, and what breaks them."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from discreet.additive.bins import Bins
from discreet.additive.records import Coordinates, coordinates
from discreet.additive.stages import (
    ResidualMechanism,
    Stage,
    class_slopes,
    count_slopes,
    no_offset,
    target_slopes,
)
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.guarantee import Neighboring
from discreet.solvers.second_order.clipped_gradients import companion_weight
from tests.additive.rows import binned, rows_of

REPLACE, ADD, ZERO = Neighboring.REPLACE_ONE, Neighboring.ADD_REMOVE_ONE, Neighboring.ZERO_OUT
NORM, CAP = 0.7, 0.4


def mechanism(relation, n_outputs=1):
    return ResidualMechanism(CAP, 10, 2, 1, NORM, relation, 1.0, n_outputs)


def exact(made, residuals, rows):
    """The exact vector that the mechanism would add noise to, for these residuals and rows."""
    kept = {}

    class Exact(ResidualMechanism):
        @property
        def gaussian(self):
            class Silent:
                stddev = 1.0

                @staticmethod
                def release(value, entropy):
                    kept["value"] = value
                    return value

            return Silent

    twin = Exact(CAP, 10, 2, 1, NORM, made.neighboring, 1.0, made.n_outputs)
    made_of = Coordinates((np.array(rows),), 0.0)
    records = binned(made_of, [np.arange(len(rows))], 10)
    twin.release_sums(records, np.zeros((2, made.n_outputs)), lambda raw, _: np.array(residuals), None)
    return kept["value"]


def grid(n_outputs):
    """Residuals and rows of one record: all sizes, directions and signs."""
    sizes = [0.0, 0.1, CAP * (math.sqrt(5) - 2), 0.2, 0.3, CAP, 1.0]
    for size in sizes:
        for sign in (1, -1):
            direction = np.zeros(n_outputs)
            direction[: min(2, n_outputs)] = [1.0, -1.0][: min(2, n_outputs)]
            direction *= sign * size / np.linalg.norm(direction)
            for row in ([NORM, 0.0], [0.0, NORM], [-NORM, 0.0], [NORM / 3, 0.0], [0.0, 0.0]):
                yield direction, row


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("relation", [REPLACE, ADD, ZERO])
@pytest.mark.lemma("additive-models.md#theorem-3")
def test_worst_neighbors_attain_the_declared_sensitivity(relation, n_outputs):
    made = mechanism(relation, n_outputs)
    values = [exact(made, [residual], [row]) for residual, row in grid(n_outputs)]
    if relation is REPLACE:
        worst = max(np.linalg.norm(a - b) for a in values for b in values)
    else:
        worst = max(np.linalg.norm(a) for a in values)
    declared = made.gaussian.sensitivity.value
    assert 0.999 < worst / declared <= 1
    assert declared < relation.contributions * CAP * NORM * 1.0001


@pytest.mark.parametrize(("relation", "weight"), [(REPLACE, 2.0), (REPLACE, 1.68), (ADD, 1.2)])
def test_a_heavier_companion_is_caught(relation, weight):
    made = mechanism(relation)
    factor = weight / companion_weight(relation)
    values = [exact(made, [residual], [row]) for residual, row in grid(1)]
    for value in values:
        value[-1] *= factor
    worst = max(np.linalg.norm(a - b * (relation is REPLACE)) for a in values for b in values)
    assert worst > made.gaussian.sensitivity.value


def test_clipping_after_the_product_is_caught():
    """A short record with a large residual would fill the gradient and count as not clipped at all."""
    made = mechanism(REPLACE)
    row, residual = np.array([NORM / 4, 0.0]), 4 * CAP
    twin = np.append(residual * row * min(1.0, CAP * NORM / np.linalg.norm(residual * row)), 16 * made.weight)
    other = exact(made, [[-CAP]], [[NORM, 0.0]])
    other[-1] = 0.0
    assert np.linalg.norm(twin - other) > made.gaussian.sensitivity.value


@pytest.mark.parametrize("n", [10**5, 10**7])
def test_rounding_makes_the_declaration_larger_but_little(n):
    plain = 2 * CAP * NORM
    declared = ResidualMechanism(CAP, n, 800, 16, NORM, REPLACE, 1.0, 7).gaussian.sensitivity.value
    assert plain < declared < plain * (1 + 2e-12 * n)


def stage(task="target", n=4000, n_outputs=1, share=1.0, unit=1e-6, **settings):
    return Stage(task, n, 40, 3, n_outputs, ADD, unit, share, 1e6, **settings)


def sample(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 6, n), rng.integers(0, 3, n)]
    bins = [Bins(np.arange(1.0, size), np.empty(0, dtype=np.int64), np.ones(size), size) for size in (6, 3)]
    made = coordinates(bins, [True, False])
    effects = np.array([0.3, -0.2, 0.1, 0.4, -0.1, 0.0]), np.array([0.2, -0.2, 0.1])
    signal = effects[0][codes[0]] + effects[1][codes[1]]
    records = binned(made, codes)
    return made, codes, signal, records, rng


def test_without_noise_the_fit_of_targets_is_least_squares_on_the_bins():
    made, codes, signal, records, rng = sample()
    y = signal + rng.uniform(-0.1, 0.1, len(signal))
    with insecure_noise(0):
        theta = stage().run(records, target_slopes(y, no_offset), fresh_entropy())
    hot = np.column_stack([codes[0][:, None] == np.arange(6), codes[1][:, None] == np.arange(3)]).astype(
        float
    )
    expected = hot @ np.linalg.lstsq(hot, y, rcond=None)[0]
    assert np.abs(rows_of(made, codes) @ theta[:, 0] - expected).max() < 1e-3


def test_without_noise_the_fit_of_classes_is_logistic_regression_on_the_bins():
    made, codes, signal, records, rng = sample(seed=1)
    y = (rng.uniform(size=len(signal)) < 1 / (1 + np.exp(-4 * signal))).astype(float)
    with insecure_noise(0):
        theta = stage("classes").run(records, class_slopes(y, 1, no_offset), fresh_entropy())
    hot = np.column_stack([codes[0][:, None] == np.arange(6), codes[1][:, None] == np.arange(3)]).astype(
        float
    )

    def loss(weights):
        raw = hot @ weights
        return np.logaddexp(0, raw).sum() - y @ raw + 1e-6 * weights @ weights

    expected = hot @ minimize(loss, np.zeros(9), method="L-BFGS-B", options={"maxiter": 500}).x
    assert np.abs(rows_of(made, codes) @ theta[:, 0] - expected).max() < 0.02


def test_without_noise_the_fit_of_counts_is_poisson_regression_on_the_bins():
    made, codes, signal, records, rng = sample(seed=3)
    y = rng.poisson(np.exp(2 * signal)) / 1.0
    slopes, reach = count_slopes(y, 2.5, no_offset), 2.5
    assert y.max() < math.exp(reach)

    def rate(theta, square):
        mean = float((rows_of(made, codes) @ theta).mean())
        return math.exp(mean + max(square - mean**2, 0.0) / 2)

    with insecure_noise(0):
        theta = stage("count", reach=reach).run(records, slopes, fresh_entropy(), rate)
    hot = np.column_stack([codes[0][:, None] == np.arange(6), codes[1][:, None] == np.arange(3)]).astype(
        float
    )

    def loss(weights):
        raw = hot @ weights
        return np.exp(raw).sum() - y @ raw + 1e-6 * weights @ weights

    expected = hot @ minimize(loss, np.zeros(9), method="L-BFGS-B", options={"maxiter": 500}).x
    assert np.abs(rows_of(made, codes) @ theta[:, 0] - expected).max() < 0.02


def test_residuals_of_counts_are_those_of_the_bounded_loss():
    reach = 1.7
    made = stage("count", reach=reach)
    raw = np.linspace(-3 * reach, 3 * reach, 4001)
    for count in (0.0, 1.0, math.exp(reach)):
        found = count_slopes(np.full(len(raw), count), reach, no_offset)(raw[:, None], slice(None))[:, 0]
        np.testing.assert_allclose(found, np.exp(np.clip(raw, -reach, reach)) - count, rtol=1e-14)
        assert np.abs(found).max() <= made.largest_cap
    assert made.largest_cap == pytest.approx(math.exp(reach))


def test_an_offset_is_fitted_around():
    made, codes, signal, records, _ = sample(seed=2)
    offset = np.linspace(-0.2, 0.2, len(signal))[:, None]
    with insecure_noise(0):
        theta = stage().run(
            records, target_slopes(signal + offset[:, 0], offset.__getitem__), fresh_entropy()
        )
    assert np.abs(rows_of(made, codes) @ theta[:, 0] - signal).max() < 1e-3


@pytest.mark.lemma("additive-models.md#theorem-5")
def test_the_budget_is_what_the_releases_add_up_to():
    """Squared multipliers of everything that is released add up to the stage's share."""
    made = stage(share=0.6, unit=2.0)
    total = 0.0
    for release in made.releases:
        gaussian = release.mechanism.gaussian
        total += (release.times or 1) / gaussian.noise_multiplier**2
    assert total == pytest.approx(0.6 / 2.0**2)
    narrow = made.residuals(5, 0.1, 0.01)
    assert narrow.noise_multiplier == made.residuals(40, 1.0, 1.0).noise_multiplier
