"""Noise bands: they hold what they say they hold, shrink with the noise, and follow the law of the released moment."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.bands import ACCEPTED, invented, measured
from discreet import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from discreet.additive import bands
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.solvers.second_order.posterior import Curvature, PosteriorMean

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so few records are mostly noise

BOUNDS = {"target": (-1, 1), "classes": None, "count": (0, 20)}


@pytest.fixture(scope="module")
def study():
    """One value of a shape per fit, drawn by released counts: its error over the half width of its band."""
    found = []
    for seed in range(90):
        task, relation = list(BOUNDS)[seed % 3], ("AR", "RO")[seed % 2]
        fit = measured(*invented(task, 2000, seed), task, BOUNDS[task], 1.0, relation, seed)
        rng = np.random.default_rng(seed)
        share, width, _, error, _ = fit.columns[rng.integers(4)]
        place = rng.choice(len(share), p=share / share.sum())
        found.append(abs(error[place]) / width[place])
    return np.array(found)


def test_nine_of_ten_values_lie_in_their_band(study):
    """Fits are independent, so hits are binomial: no fewer and no more than the accepted coverages allow."""
    hits = int((study <= 1).sum())
    assert binom.ppf(0.005, len(study), ACCEPTED[0]) <= hits <= binom.ppf(0.995, len(study), ACCEPTED[1])


@pytest.mark.parametrize("factor", [0.6, 2.0])
def test_the_study_would_notice_another_width(study, factor):
    hits = int((study <= factor).sum())
    assert not binom.ppf(0.005, len(study), ACCEPTED[0]) <= hits <= binom.ppf(0.995, len(study), ACCEPTED[1])


def test_bands_vanish_with_the_noise():
    X, y, schema = invented("target", 3000, 0)
    sizes = []
    for epsilon in (0.5, 5.0, 50.0, 2000.0):
        with insecure_noise(3):
            model = PrivateAdditiveRegressor(
                epsilon, 1e-6, schema=schema, target_bounds=(-1, 1), pairs=0, max_bins=8
            ).fit(X, y)
        sizes.append(np.sqrt(np.mean(np.square(np.concatenate([s.margin for s in model.model_.shapes])))))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.02 * sizes[0]


def test_bands_come_in_the_units_of_the_targets():
    X, y, schema = invented("target", 2000, 1)
    tables = []
    for factor in (1.0, 100.0):
        with insecure_noise(4):
            model = PrivateAdditiveRegressor(
                1.0, 1e-6, schema=schema, target_bounds=(-factor, factor), pairs=0
            )
            tables.append(model.fit(X, factor * y).shapes_["x0"])
    small, large = (np.subtract(one["high"], one["low"]) for one in tables)
    assert (small > 0).all()
    assert np.allclose(large, 100 * small, rtol=1e-6)


def test_shapes_that_were_moved_have_no_band():
    X, y, schema = invented("target", 2000, 2)
    model = PrivateAdditiveRegressor(
        1.0, 1e-6, schema=schema, target_bounds=(-1, 1), monotonic={"x1": 1}
    ).fit(X, y)
    assert "low" not in model.shapes_["x1"]
    assert "low" in model.shapes_["x0"]
    model.set_shape("x0", model.shapes_["x0"]["value"])
    assert "low" not in model.shapes_["x0"]


def test_several_classes_have_no_bands():
    X, y, schema = invented("target", 1000, 3)
    model = PrivateAdditiveClassifier(1.0, 1e-6, schema=schema, classes=[0, 1, 2], n_iterations=2)
    assert all("low" not in table for table in model.fit(X, np.digitize(y, [0.0, 0.3])).shapes_.values())


def test_noise_of_early_gradients_is_followed_to_the_end(monkeypatch):
    """The sums answer by a slope that is not the assumed one; the prior is kept, so that all is linear."""
    monkeypatch.setattr(PosteriorMean, "_likeliest", lambda self, along, known: 0.7)
    rng = np.random.default_rng(0)
    H, J = (made @ made.T for made in rng.normal(size=(2, 3, 6)))
    truth, stddevs, ends = np.array([1.0, -2.0, 0.5]), (3.0, 1.0, 2.0, 1.5), []
    for _ in range(4000):
        state = PosteriorMean(Curvature(H, 0.0), np.eye(3))
        for stddev in stddevs:
            state.update(J @ (state.theta - truth) + stddev * rng.normal(size=3), stddev, 0.8)
        ends.append(state.theta)
    seen, known = np.cov(np.array(ends).T), state.noise_covariance(J)
    assert np.linalg.norm(seen - known) < 0.1 * np.linalg.norm(known)
    assert np.linalg.norm(seen - state.noise_covariance(0.8 * H)) > 0.2 * np.linalg.norm(known)


def test_slopes_are_those_of_clipped_residuals():
    raw, step, rng = np.array([-2.0, -0.3, 0.0, 1.1]), 1e-4, np.random.default_rng(0)
    for cap in (0.3, 0.6, 1.0):
        chance = 1 / (1 + np.exp(-raw))

        def mean(shift, chance=chance, cap=cap):
            high = 1 / (1 + np.exp(-raw - shift))
            return chance * np.maximum(high - 1, -cap) + (1 - chance) * np.minimum(high, cap)

        assert np.allclose(bands.class_slope(cap)(raw), (mean(step) - mean(-step)) / (2 * step), atol=1e-4)
    counts = np.exp(raw) + 0.8 * np.exp(raw / 2) * rng.normal(size=(400_000, 4))
    clipped = [np.clip(np.exp(raw + shift) - counts, -1.2, 1.2).mean(axis=0) for shift in (-0.01, 0.01)]
    slope = bands.count_slope(1.2, 0.8, 5.0, 0.0)(raw)
    assert np.allclose(slope, (clipped[1] - clipped[0]) / 0.02, atol=0.01)


def test_relations_between_columns_are_taken_from_the_look_as_far_as_its_noise_allows():
    rng = np.random.default_rng(1)
    unrelated = 1000 * np.diag([4.0, 2.0, 1.0, 0.5])
    related = unrelated.copy()
    related[0, 1] = related[1, 0] = 2500.0
    laws = []
    for noise in (1.0, 1e6):
        added = noise * rng.normal(size=(4, 4))
        looked = SimpleNamespace(second=related + (added + added.T) / 2, second_stddev=noise)
        laws.append(bands._Between.of(unrelated, looked))
    assert np.allclose(laws[0].drawn(np.random.default_rng(0)), related, atol=20)
    assert np.abs(laws[1].expected).max() < 0.01
    assert np.abs(laws[1].stddev).min() > 0


@pytest.mark.parametrize("epsilon", [0.01, 1000.0])
@pytest.mark.parametrize("n", [1, 30])
def test_bands_are_numbers_whatever_is_released(epsilon, n):
    X, y, schema = invented("target", n, 0)
    X = {name: np.full_like(cells, cells[0]) for name, cells in X.items()}
    for seed in range(3):
        with insecure_noise(seed):
            models = [
                PrivateAdditiveClassifier(epsilon, 1e-6, schema=schema, classes=[0, 1]).fit(X, np.ones(n)),
                PrivateAdditiveRegressor(epsilon, 1e-6, schema=schema, target_bounds=(-1, 1)).fit(X, y),
                PrivateAdditiveRegressor(
                    epsilon, 1e-6, schema=schema, target_bounds=(0, 1000), loss="poisson", least_mean=0.01
                ).fit(X, np.abs(y)),
            ]
        for model in models:
            assert all(np.isfinite(shape.margin).all() for shape in model.model_.shapes)
