"""Minimizers always reach a certificate that is true, whoever proposes the answer."""

from __future__ import annotations

import functools

import mpmath
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from discreet.losses import HuberHinge, HuberRegression, Logistic, Softmax
from discreet.records import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.minimizers import minimizer
from discreet.solvers.minimizers.minimizer import Objective, minimize, minimizer_norm, smallest_tolerance

LOSSES = [Logistic(), HuberHinge(0.5), HuberHinge(0.02), HuberRegression(0.2), Softmax(3)]


def objective(loss, *, n=400, d=6, l2=0.5, seed=0, store=np.asarray, linear_scale=3.0, bounds=None):
    bounds = bounds or Bounds(1.0)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(0.03, 2, d)
    signal = X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n)
    if isinstance(loss, Softmax):
        y = np.digitize(signal, [-0.7, 0.7])
    else:
        y = signal if isinstance(loss, HuberRegression) else np.where(signal > 0, 1.0, -1.0)
    p = bounds.n_features(d)
    linear = linear_scale * rng.standard_normal(p if loss.n_outputs == 1 else (p, loss.n_outputs))
    return Objective(ArrayRecords(store(X), y, bounds), loss, l2, linear)


def assert_minimum(target, found, tolerance):
    _, gradient = target.value_and_gradient(found.theta)
    assert found.theta.shape == target.shape
    assert np.linalg.norm(gradient) + target.rounding(float(np.linalg.norm(found.theta))) <= tolerance * (
        1 + 1e-9
    )
    assert np.linalg.norm(gradient) <= found.gradient_norm <= tolerance


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("optimizer", ["auto", "lbfgs", "newton", "newton-cg"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_optimizer_reaches_the_tolerance_for_every_loss(loss, optimizer, store):
    target = objective(loss, store=store)
    tolerance = max(1e-9, target.smallest_tolerance())
    found = minimize(target, tolerance, optimizer=optimizer)
    assert_minimum(target, found, tolerance)
    assert found.n_passes >= 2


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_optimizers_agree_as_strong_convexity_demands(loss):
    target = objective(loss, l2=0.3)
    tolerance = 1e-8
    answers = [minimize(target, tolerance, optimizer=name).theta for name in ("auto", "newton", "newton-cg")]
    for answer in answers[1:]:
        assert np.linalg.norm(answer - answers[0]) <= 2 * tolerance / target.l2


@pytest.mark.parametrize("intercept", [True, False])
def test_limit_is_scikit_learn(intercept):
    """Rows within the bound are not clipped; l2 = 1 / C with the intercept as one more penalized column."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500, 5))
    y = np.where(X[:, 0] + rng.standard_normal(500) > 0, 1.0, -1.0)
    columns = np.column_stack([X, np.ones(500)]) if intercept else X
    records = ArrayRecords(X, y, Bounds(10.0, intercept))
    found = minimize(Objective(records, Logistic(), l2=0.7), 1e-8)
    reference = LogisticRegression(C=1 / 0.7, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(columns, y)
    np.testing.assert_allclose(found.theta, reference.coef_.ravel(), atol=1e-6)


def test_limit_is_scikit_learn_for_several_classes():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 4))
    y = np.argmax(X[:, :3] + rng.standard_normal((400, 3)), axis=1)
    records = ArrayRecords(X, y, Bounds(10.0, intercept=False))
    found = minimize(Objective(records, Softmax(3), l2=0.4), 1e-8)
    reference = LogisticRegression(C=1 / 0.4, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(found.theta.T, reference.coef_, atol=1e-6)


def test_no_records_leave_the_linear_term():
    linear = np.array([1.0, -2.0, 0.5])
    records = ArrayRecords(np.zeros((0, 2)), [], Bounds())
    for optimizer in ("auto", "newton", "lbfgs", "newton-cg"):
        found = minimize(Objective(records, Logistic(), 2.0, linear), 1e-12, optimizer=optimizer)
        np.testing.assert_allclose(found.theta, -linear / 2, atol=1e-12)


def test_quadratic_region_has_a_closed_form():
    """Within the Huber width the minimizer solves the normal equations."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((50, 3)) / 10
    y = rng.standard_normal(50)
    b = rng.standard_normal(3)
    target = Objective(ArrayRecords(X, y, Bounds(1.0, intercept=False)), HuberRegression(9.0), 0.3, b)
    expected = np.linalg.solve(X.T @ X + 0.3 * np.eye(3), X.T @ y - b)
    assert np.abs(X @ expected - y).max() < 9
    np.testing.assert_allclose(minimize(target, 1e-8).theta, expected, atol=1e-7)


def raises(fun, x0, jac):
    raise FloatingPointError("data-dependent trouble")


def leaves_with_an_unexpected_signature():
    return None


def corrupts_its_arguments(fun, x0, jac):
    jac(x0)[:] = np.nan
    x0[:] = np.nan
    return x0


ADVERSARIES = {
    "nan": lambda fun, x0, jac: np.full_like(x0, np.nan),
    "infinite": lambda fun, x0, jac: np.full_like(x0, np.inf),
    "huge": lambda fun, x0, jac: np.full_like(x0, 1e300),
    "far away": lambda fun, x0, jac: np.full_like(x0, 1e6),
    "wrong shape": lambda fun, x0, jac: np.zeros(len(x0) + 1),
    "scalar": lambda fun, x0, jac: 3.0,
    "nothing": lambda fun, x0, jac: None,
    "text": lambda fun, x0, jac: "here is your model",
    "raises": raises,
    "bad signature": leaves_with_an_unexpected_signature,
    "corrupts": corrupts_its_arguments,
    "lazy": lambda fun, x0, jac: x0,
    "uphill": lambda fun, x0, jac: x0 + 10 * jac(x0),
    "one step": lambda fun, x0, jac: scipy.optimize.OptimizeResult(x=x0 - 1e-3 * jac(x0)),
}


@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5), Softmax(3)], ids=str)
@pytest.mark.parametrize("name", list(ADVERSARIES))
def test_no_black_box_can_spoil_the_certificate(name, loss):
    target = objective(loss)
    tolerance = 1e-8
    found = minimize(target, tolerance, optimizer=ADVERSARIES[name])
    assert_minimum(target, found, tolerance)
    assert "Newton" in found.outcome
    np.testing.assert_allclose(found.theta, minimize(target, tolerance).theta, atol=2 * tolerance / target.l2)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG", "SLSQP"])
@pytest.mark.parametrize("keywords", [{}, {"jac": True}], ids=["plain", "jac=True"])
def test_scipy_optimizers_are_accepted_as_they_are(method, keywords):
    target = objective(Logistic())
    found = minimize(
        target, 1e-8, optimizer=functools.partial(scipy.optimize.minimize, method=method, **keywords)
    )
    assert found.outcome.startswith("accepted")
    assert_minimum(target, found, 1e-8)


def test_a_good_black_box_is_not_polished():
    target = objective(Logistic())
    best = minimize(target, 1e-9).theta
    found = minimize(target, 1e-8, optimizer=lambda fun, x0, jac: best)
    assert found.outcome == "accepted"
    assert found.n_passes == 2  # the start and the verification
    np.testing.assert_array_equal(found.theta, best)


def test_value_and_gradient_share_one_pass():
    target = objective(Logistic())
    seen = []

    def optimizer(fun, x0, jac):
        for k in range(5):
            x = x0 + k
            seen.append((fun(x), jac(x)))
        return x0

    before = minimize(target, 1e-8, optimizer=lambda fun, x0, jac: x0).n_passes
    assert minimize(target, 1e-8, optimizer=optimizer).n_passes == before + 4 + 1
    value, gradient = target.value_and_gradient(np.ones(target.shape))
    assert seen[1][0] == value
    np.testing.assert_array_equal(seen[1][1], gradient)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("size", [(1, 1), (2, 5), (40, 3), (3000, 4)], ids=str)
@pytest.mark.parametrize("l2", [1e-3, 1.0, 1e5])
def test_the_smallest_accepted_tolerance_is_reached(loss, size, l2):
    """The limit is set so that rounding can never keep the loop from ending."""
    n, d = size
    target = objective(loss, n=n, d=d, l2=l2)
    tolerance = target.smallest_tolerance() / 2 * (1 + 1e-12)
    for optimizer in ("auto", "newton-cg"):
        assert_minimum(target, minimize(target, tolerance, optimizer=optimizer), tolerance)


def test_impossible_tolerances_are_refused_before_any_pass(monkeypatch):
    target = objective(Logistic())
    monkeypatch.setattr(target.records, "value_and_gradient", lambda *_: pytest.fail("looked at the data"))
    for tolerance in (0.0, -1.0, np.nan, np.inf, 1e-17):
        with pytest.raises(ValueError, match="tolerance"):
            minimize(target, tolerance)


def test_the_smallest_tolerance_reads_public_numbers_only():
    first, second = objective(Logistic(), seed=1), objective(Logistic(), seed=2, store=sp.csr_array)
    second.linear = first.linear
    assert first.smallest_tolerance() == second.smallest_tolerance()
    few, many = (smallest_tolerance(Logistic(), n, 10, 1.0, 1.0, 5.0) for n in (100, 100_000))
    assert few < many < 1e-4


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_minimizer_stays_within_its_public_norm(loss):
    for seed in range(5):
        target = objective(loss, seed=seed, l2=0.2, linear_scale=2.0 * seed)
        found = minimize(target, 1e-7)
        sizes = target.records.n_samples, target.records.bounds.feature_norm
        limit = minimizer_norm(loss, *sizes, target.l2, float(np.linalg.norm(target.linear)))
        assert np.linalg.norm(found.theta) <= limit + 1e-6


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_certificate_is_true_in_exact_arithmetic(store):
    """|exact gradient| <= gradient_norm, including l2 and the linear term, at the tightest tolerance."""
    target = objective(Logistic(), n=120, d=4, store=store, seed=9)
    found = minimize(target, target.smallest_tolerance())
    X = target.records.matrix.toarray() if target.records.sparse else target.records.matrix
    scales = target.records.bounds.row_scales(X)
    with mpmath.workdps(60):
        total = [
            mpmath.mpf(target.l2) * mpmath.mpf(t) + mpmath.mpf(b)
            for t, b in zip(found.theta, target.linear, strict=True)
        ]
        for x, y, s in zip(X, target.records.labels, scales, strict=True):
            v = [mpmath.mpf(s) * mpmath.mpf(float(e)) for e in [*x, 1.0]]
            t = mpmath.fsum(a * mpmath.mpf(b) for a, b in zip(v, found.theta, strict=True))
            slope = -y / (1 + mpmath.exp(y * t))
            total = [g + slope * e for g, e in zip(total, v, strict=True)]
        assert mpmath.sqrt(mpmath.fsum(g * g for g in total)) <= found.gradient_norm


def test_an_optimistic_certificate_would_be_caught():
    """The certificate never trusts a computed norm alone, nor a theta so large that a pass could overflow."""
    target = objective(Logistic(), n=120, d=4, seed=9)
    theta = minimize(target, target.smallest_tolerance()).theta
    assert target.rounding(float(np.linalg.norm(theta))) > 0
    assert target.gradient_norm_bound(theta, np.zeros_like(theta)) > 0
    assert target.gradient_norm_bound(np.full_like(theta, 1e300), theta) == np.inf


@pytest.mark.parametrize("scale", [1e-8, 1e4])
def test_bad_starts_do_no_harm(scale):
    for loss in (Logistic(), HuberHinge(0.5)):
        target = objective(loss)
        start = scale * np.random.default_rng(3).standard_normal(target.shape)
        assert_minimum(target, minimize(target, 1e-8, start=start), 1e-8)
    with pytest.raises(ValueError, match="start"):
        minimize(target, 1e-8, start=np.full(target.shape, np.nan))


def test_ill_conditioned_problems_converge():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((2000, 8)) @ rng.standard_normal((8, 8)) * np.geomspace(1e-5, 1, 8)
    y = np.where(rng.random(2000) < 0.5, 1.0, -1.0)
    records = ArrayRecords(X, y, Bounds(1.0))
    for loss in (Logistic(), HuberHinge(0.01)):
        target = Objective(records, loss, 1e-4, rng.standard_normal(9))
        tolerance = target.smallest_tolerance()
        for optimizer in ("auto", "newton", "lbfgs"):
            assert_minimum(target, minimize(target, tolerance, optimizer=optimizer), tolerance)


def test_separable_data_converge():
    X = np.random.default_rng(1).standard_normal((200, 3))
    records = ArrayRecords(X, np.where(X[:, 0] > 0, 1.0, -1.0), Bounds(1.0))
    for loss in (Logistic(), HuberHinge(0.5)):
        target = Objective(records, loss, 1e-3)
        assert_minimum(target, minimize(target, 1e-6), 1e-6)


def test_many_columns_and_wide_softmax_use_passes_only():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 1200))
    y = rng.choice([-1.0, 1.0], 60)
    target = Objective(ArrayRecords(X, y, Bounds(1.0)), Logistic(), 0.1)
    for optimizer in ("auto", "newton"):
        assert_minimum(target, minimize(target, 1e-8, optimizer=optimizer), 1e-8)
    X, y = rng.standard_normal((300, 200)), rng.integers(0, 6, 300)
    target = Objective(ArrayRecords(X, y, Bounds(1.0)), Softmax(6), 0.1)
    for optimizer in ("auto", "newton"):
        assert_minimum(target, minimize(target, 1e-8, optimizer=optimizer), 1e-8)


def test_newton_finishes_what_quasi_newton_leaves(monkeypatch):
    monkeypatch.setattr("discreet.solvers.minimizers.lbfgs_newton._LBFGS_STEPS", 2)
    target = objective(HuberHinge(0.1))
    found = minimize(target, 1e-8)
    assert "Newton" in found.outcome
    assert_minimum(target, found, 1e-8)


def test_null_records_change_nothing():
    target = objective(Logistic())
    X, y = target.records.matrix, target.records.labels
    null = np.zeros(len(y) + 3, dtype=bool)
    null[-3:] = True
    padded = ArrayRecords(
        np.vstack([X, np.full((3, X.shape[1]), np.nan)]), np.append(y, [0, 7, np.nan]), Bounds(1.0), null
    )
    found = minimize(Objective(padded, Logistic(), target.l2, target.linear), 1e-9)
    np.testing.assert_allclose(found.theta, minimize(target, 1e-9).theta, atol=1e-8)


def test_progress_counts_passes():
    lines = []
    target = objective(Logistic())
    found = minimize(target, 1e-8, progress=lambda n_passes, norm: lines.append((n_passes, norm)))
    passes, norms = zip(*lines, strict=True)
    assert list(passes) == sorted(passes)
    assert norms[-1] <= 1e-8
    assert passes[-1] == found.n_passes


def test_unusable_objectives_are_refused():
    records = objective(Logistic()).records
    for l2 in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="l2"):
            Objective(records, Logistic(), l2)
    with pytest.raises(ValueError, match="linear"):
        Objective(records, Logistic(), 1.0, np.zeros(3))
    with pytest.raises(ValueError, match="linear"):
        Objective(records, Logistic(), 1.0, np.full(7, np.nan))
    with pytest.raises(ValueError, match="optimizer"):
        minimizer.minimize(Objective(records, Logistic(), 1.0), 1e-6, optimizer="adam")


def test_a_planned_tolerance_is_enough_for_any_smaller_number_of_records():
    """Also where rounding drowns the ridge for the declared number, and not for the true one, which is private."""
    rng, finite = np.random.default_rng(0), 0
    for _ in range(2000):
        loss, declared = LOSSES[rng.integers(len(LOSSES))], int(10 ** rng.uniform(0, 15))
        p, norm = int(10 ** rng.uniform(0, 4)), 2.0 ** rng.uniform(-100, 100)
        l2, linear = norm**2 * 10 ** rng.uniform(-14, 8), norm * 10 ** rng.uniform(-3, 12)
        planned = smallest_tolerance(loss, declared, p, norm, l2, linear)
        if not np.isfinite(planned):
            continue
        finite += 1
        for n in {1, max(1, declared // 1000), max(1, declared // 2), declared}:
            for drawn in (0.0, linear, 2 * linear):
                assert minimizer._reachable(loss, n, p, norm, l2, drawn) <= planned
    assert finite > 1000
