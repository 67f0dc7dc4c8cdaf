"""Pure objective perturbation: exact densities against the price, the law of the release, the output stage."""

import itertools

import numpy as np
import pytest
from scipy import stats

from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.worst_pairs import worst_pair
from discreet.losses import HuberHinge, HuberRegression, Linear, Logistic, Poisson, Softmax
from discreet.mechanisms.additive import GaussianNoise
from discreet.mechanisms.gamma_norm import GammaNormMechanism, GammaNormNoise, ending_exponent, norm_bound
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.events import Pure
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import L2Ball
from discreet.solvers.perturbation.objective import DissertationRule, ObjectivePerturbation
from discreet.solvers.perturbation.pure_objective import objective_epsilon

BOUNDS = Bounds(1.0, intercept=False)


def problem(loss=None, n=200, p=3, **kwargs):
    return Problem(loss or Logistic(), BOUNDS, n, p, **kwargs)


def log_density(loss, rows, labels, points, scale, total_l2):
    """log of exp(-|b(theta)| / scale) det(Hessian), up to a constant that all data sets share."""
    found = np.empty(len(points))
    for k, theta in enumerate(points):
        t = rows @ theta
        b = rows.T @ loss.derivative(labels, t) + total_l2 * theta
        hessian = rows.T @ (loss.second_derivative(labels, t)[:, None] * rows)
        found[k] = -np.linalg.norm(b) / scale
        found[k] += np.linalg.slogdet(hessian + total_l2 * np.eye(len(theta)))[1]
    return found


LABELS = {Logistic(): (1.0, -1.0), HuberHinge(0.5): (1.0, -1.0), HuberRegression(1.0): (-3.0, 3.0),
          Poisson(1.0, 2.0): (0.0, 2.0), Linear(1.0): (-1.0, 1.0)}  # fmt: skip


@pytest.mark.parametrize("loss", LABELS, ids=str)
@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
@pytest.mark.lemma("gamma-noise.md#theorem-4")
def test_no_pair_of_exact_densities_differs_by_more_than_the_price(loss, relation):
    """The continuous mechanism in two dimensions: no ratio exceeds exp(price), and much of it is reached."""
    rng = np.random.default_rng(0)
    grid = np.array(list(itertools.product(np.linspace(-6, 6, 15), repeat=2)))
    scale, worst = 1.5, 0.0
    for total_l2 in (0.3, 2.0):
        price = objective_epsilon(problem(loss, p=2), relation, scale, total_l2)
        for _ in range(10):
            rows = rng.normal(size=(4, 2))
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            labels = rng.choice(LABELS[loss], 4)
            other_rows, other_labels = rows.copy(), labels.copy()
            if relation is Neighboring.ZERO_OUT:
                other_rows[0] = 0.0
            else:
                other_rows[0] = -rows[0] if rng.random() < 0.5 else rows[0]
                other_labels[0] = rng.choice(LABELS[loss])
            arguments = grid, scale, total_l2
            change = log_density(loss, rows, labels, *arguments)
            change -= log_density(loss, other_rows, other_labels, *arguments)
            assert np.abs(change).max() <= price
            worst = max(worst, np.abs(change).max() / price)
    assert worst > 0.4  # a flipped label moves a logistic gradient by R, not by 2 R


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(0.5), HuberRegression(1.0), Softmax(4)], ids=str)
def test_calibration_uses_all_of_epsilon_and_no_more(loss, relation):
    for epsilon in (0.1, 1.0, 5.0):
        plan = ObjectivePerturbation().plan(problem(loss), Guarantee(epsilon, 0.0, relation))
        assert isinstance(plan.event, Pure)
        assert 0.99 * epsilon <= plan.event.epsilon <= epsilon
        again = objective_epsilon(plan.problem, relation, plan.objective_noise.effective_scale, plan.total_l2)
        assert again + 1 / plan.output.noise_multiplier <= epsilon
        # Half of the noise costs about twice as much.
        assert objective_epsilon(plan.problem, relation, plan.scale / 2, plan.total_l2) > 1.5 * epsilon


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_curvature_of_a_softmax_is_attained_where_all_classes_are_as_likely(n_classes):
    """One record, no noise to speak of: its Hessian at 0 has n_classes - 1 eigenvalues of R^2 / n_classes."""
    row, total_l2 = np.array([0.6, 0.8]), 0.7
    even = np.full(n_classes, 1 / n_classes)
    hessian = np.kron(np.outer(row, row), np.diag(even) - np.outer(even, even))
    change = np.linalg.slogdet(hessian + total_l2 * np.eye(len(hessian)))[1] - len(hessian) * np.log(total_l2)
    price = objective_epsilon(problem(Softmax(n_classes), p=2), Neighboring.ZERO_OUT, 1e9, total_l2)
    assert change <= price <= change * (1 + 1e-6)


def test_the_noise_of_a_softmax_is_paid_for_along_its_longest_gradient():
    """Far out a record's gradient has norm sqrt(2) R and no curvature: that much shift, over the scale."""
    flat = objective_epsilon(problem(Softmax(3), p=2), Neighboring.REPLACE_ONE, 1.5, total_l2=1e12)
    assert flat == pytest.approx(2 * np.sqrt(2) / 1.5, rel=1e-9)


def test_regularization_is_free_where_the_logistic_curvature_vanishes():
    free = objective_epsilon(problem(), Neighboring.REPLACE_ONE, scale=2.0, total_l2=2.0)
    assert free == pytest.approx(1.0, rel=1e-9)
    assert objective_epsilon(problem(), Neighboring.REPLACE_ONE, 2.0, total_l2=0.5) > 1.1
    several = problem(n_models=5)
    assert objective_epsilon(several, Neighboring.REPLACE_ONE, 2.0, 2.0) == pytest.approx(5 * free)


def test_without_data_the_release_is_pure_noise():
    plan = ObjectivePerturbation().plan(problem(p=4), Guarantee(1.0))
    records, entropy = [ArrayRecords(np.zeros((200, 4)), np.ones(200), BOUNDS)], fresh_entropy()
    norms = [np.linalg.norm(plan.run(records, entropy).theta) * plan.total_l2 for _ in range(800)]
    scale = plan.objective_noise.effective_scale
    assert stats.kstest(norms, stats.gamma(4, scale=scale).cdf).pvalue > 1e-7
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(norms, stats.gamma(4, scale=scale * wrong).cdf).pvalue < 1e-9


def test_law_in_one_dimension_is_the_exact_density():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(30, 1))
    y = np.sign(X.ravel() + 0.3 * rng.normal(size=30))
    plan = ObjectivePerturbation().plan(problem(n=30, p=1), Guarantee(2.0))
    records, entropy = [ArrayRecords(X, y, BOUNDS)], fresh_entropy()
    theta = np.array([plan.run(records, entropy).theta.item() for _ in range(800)])
    gradient = np.array([(X.ravel() * Logistic().derivative(y, X.ravel() * t)).sum() for t in theta])
    linear = -(gradient + plan.total_l2 * theta)
    law = stats.laplace(scale=plan.objective_noise.effective_scale)
    assert stats.kstest(linear, law.cdf).pvalue > 1e-7


@pytest.mark.parametrize("relation", ["replace-one", "add-remove-one", "zero-out"])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_replays_find_nothing(kind, relation):
    model = kind(
        1.0, 0.0, classes=[0, 1], neighboring=relation, n_samples=20, bad_rows="null", solver="objective"
    )
    pair = worst_pair(relation, n_rest=5)
    found = replay(fitting(model), pair.first, pair.second)
    assert found.passed, str(found)


def test_a_twin_with_half_the_noise_is_found(monkeypatch):
    plan_class = type(ObjectivePerturbation().plan(problem(), Guarantee(1.0)))
    genuine = plan_class.objective_noise.func
    halved = property(lambda plan: type(genuine(plan))(plan.scale / 2))
    monkeypatch.setattr(plan_class, "objective_noise", halved)
    pair = worst_pair("replace-one", n_rest=5)
    found = replay(
        fitting(PrivateLogisticRegression(1.0, 0.0, classes=[0, 1], solver="objective")),
        pair.first,
        pair.second,
    )
    assert "noise" in found.failed_checks


def test_defaults_learn_and_several_classes_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) / 2
    y = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
    model = PrivateLogisticRegression(epsilon=1.0, delta=0.0, classes=[0, 1], solver="objective").fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.privacy_.delta == 0
    three = np.digitize(X[:, 0], [-0.25, 0.25])
    model = PrivateLogisticRegression(epsilon=5.0, delta=0.0, classes=[0, 1, 2], solver="objective").fit(
        X, three
    )
    assert model.score(X, three) > 0.6


def test_the_printed_gaussian_rule_refuses_delta_zero():
    with pytest.raises(ValueError, match="use 'objective'"):
        DissertationRule().plan(problem(), Guarantee(1.0))


# -- linear terms that are too long -----------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("constraint", [None, L2Ball(1.0, 3)])
@pytest.mark.parametrize("length", [1.0, 2.1, 1e30])
def test_no_linear_term_ends_a_run(monkeypatch, delta, constraint, length):
    """Whatever is drawn, something is released, and beyond the bound it is the same for all data."""
    plan = ObjectivePerturbation().plan(problem(geometry=constraint), Guarantee(1.0, delta, "replace-one"))
    drawn = np.array([length, 0.0, 0.0]) * plan.linear_norms[1]
    for kind in (GammaNormNoise, GaussianNoise):
        monkeypatch.setattr(kind, "draw", lambda *_: drawn)
    found = []
    for label in (1.0, -1.0):
        records = ArrayRecords(np.eye(3)[np.arange(200) % 3], np.full(200, label), BOUNDS)
        with insecure_noise(0):
            found.append(plan.run([records], fresh_entropy()).theta)
    assert np.isfinite(found).all()
    assert np.array_equal(*found) == (length > 2)


@pytest.mark.parametrize("p", [1, 3, 40, 1000])
@pytest.mark.lemma("gamma-noise.md#lemma-6")
def test_long_terms_are_as_rare_as_the_proof_asks(p):
    """Also computed: the gamma law beyond twice the planned norm, against 2^-64 tanh(epsilon / 2) / 2^(64 p)."""
    plan = ObjectivePerturbation().plan(problem(p=p), Guarantee(0.5, 0.0, "replace-one"))
    asked = ending_exponent(p, plan.output_epsilon)
    beyond = 2 * plan.linear_norms[1] / plan.objective_noise.effective_scale
    chernoff = beyond - p - p * np.log(beyond / p)  # P(gamma(p) > x) <= exp(-(x - p - p log(x / p)))
    assert chernoff >= asked
    assert asked >= 64 * np.log(2) * (p + 1) - np.log(np.tanh(plan.event.epsilon / 2))


def test_the_norm_bound_is_one():
    for size, exponent in itertools.product((1, 5, 100), (1.0, 10.0, 40.0)):
        assert stats.gamma(size).logsf(norm_bound(size, exponent)) <= -exponent


def test_without_a_value_the_whole_range_is_uniform():
    mechanism = GammaNormMechanism(Sensitivity(1.0), 1.0, 2000)
    with insecure_noise(0):
        found = mechanism.release_or_uniform(None, fresh_entropy()) / mechanism.noise.grid / 2.0**63
    assert stats.kstest(found, "uniform", args=(-1, 2)).pvalue > 1e-3


def test_the_coin_leaves_the_release_as_it_is():
    mechanism, value = GammaNormMechanism(Sensitivity(1.0), 1.0, 3), np.array([1.0, 2.0, 3.0])
    with insecure_noise(0):
        plain = mechanism.release(value, fresh_entropy())
    with insecure_noise(0):
        assert np.array_equal(mechanism.release_or_uniform(value, fresh_entropy()), plain)


def test_a_uniform_part_pays_for_endings():
    """Lemma 6 on three points, of which one is nearly out of reach: moved mass costs, a uniform part pays for it."""
    epsilon, gamma = 0.5, 0.1
    law = np.array([1e-3, 0.4, 0.599])
    other = np.array([1e-3 * np.exp(-epsilon), 0.4, 0.6 - 1e-3 * np.exp(-epsilon)])
    q = gamma / 3 * np.tanh(epsilon / 2)
    lost = min(q, other[0])
    moved = law + np.array([q, 0.0, -q]), other + np.array([-lost, lost, 0.0])
    with np.errstate(divide="ignore"):
        assert np.abs(np.log(moved[0]) - np.log(moved[1])).max() > epsilon
    mixed = [(1 - gamma) * one + gamma / 3 for one in moved]
    assert np.abs(np.log(mixed[0] / mixed[1])).max() <= epsilon
