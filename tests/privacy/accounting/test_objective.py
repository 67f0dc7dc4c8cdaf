"""Profiles of objective perturbation: exact densities below the bound, published constants, and false bounds caught."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from discreet.losses import HuberHinge, HuberRegression, Logistic
from discreet.privacy.accounting.gaussian import gaussian_delta
from discreet.privacy.accounting.objective import _replace_pairs, objective_delta
from discreet.privacy.events import ObjectivePerturbation
from discreet.privacy.guarantee import Neighboring

REPLACE, ZERO_OUT = Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT


def required_noise(family, l2, neighboring, epsilon, delta, *, smoothness=0.25, output_mu=0.0, n_outputs=1):
    """Smallest noise multiplier that meets (epsilon, delta), for unit rows."""

    def excess(log_noise):
        event = ObjectivePerturbation(family, math.exp(log_noise), 1 / l2, smoothness, output_mu, n_outputs)
        return math.log(max(float(objective_delta(event, epsilon, neighboring)), 1e-300)) - math.log(delta)

    return math.exp(brentq(excess, -1, 9, xtol=1e-9))


DELTA = 1 / 45000**2


@pytest.mark.parametrize(
    ("epsilon", "multiple", "neighboring", "expected"),
    [  # noise for total l2 = multiple * beta / epsilon, unit rows (published tables of the tangent bound)
        (1.0, 4, REPLACE, 11.93),
        (1.0, 8, REPLACE, 11.24),
        (1.0, 10, REPLACE, 11.22),
        (1.0, 4, ZERO_OUT, 5.61),
        (0.1, 4, REPLACE, 111.5),
        (0.1, 8, REPLACE, 103.1),
        (0.1, 4, ZERO_OUT, 51.46),
    ],
)
def test_logistic_noise_matches_the_published_table(epsilon, multiple, neighboring, expected):
    found = required_noise("logistic", multiple * 0.25 / epsilon, neighboring, epsilon, DELTA)
    assert found == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("epsilon", "multiple", "neighboring", "expected"),
    [(1.0, 2, REPLACE, 18.48), (1.0, 4, REPLACE, 14.29), (1.0, 10, ZERO_OUT, 6.18), (0.1, 2, ZERO_OUT, 98.1)],
)
def test_monotone_noise_matches_the_published_table(epsilon, multiple, neighboring, expected):
    assert required_noise(
        "monotone", multiple * 0.25 / epsilon, neighboring, epsilon, DELTA
    ) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("n_classes", "l2", "zero_out", "replace"),
    [
        (10, 4, 9.934, 20.98),
        (10, 16, 8.548, 17.43),
        (10, 1000, 8.527, 17.06),
        (7, 8, 8.606, 18.03),
        (7, 100, 8.439, 16.92),
    ],
)
def test_softmax_noise_matches_the_published_table(n_classes, l2, zero_out, replace):
    delta = 1 / 56000**2
    assert required_noise("softmax", l2, ZERO_OUT, 1, delta, n_outputs=n_classes) == pytest.approx(
        zero_out, rel=5e-4
    )
    assert required_noise("softmax", l2, REPLACE, 1, delta, n_outputs=n_classes) == pytest.approx(
        replace, rel=5e-4
    )


def test_output_stage_costs_what_was_published():
    delta = 1 / 56000**2
    with_stage = required_noise("softmax", 1e5, ZERO_OUT, 1, delta, n_outputs=10, output_mu=0.02)
    assert with_stage == pytest.approx(8.5889, rel=2e-4)


@pytest.mark.parametrize("neighboring", [REPLACE, ZERO_OUT])
@pytest.mark.parametrize(
    ("family", "longest"), [("logistic", 1), ("monotone", 1), ("general", 1), ("softmax", 2**0.5)]
)
@pytest.mark.lemma("objective-perturbation.md#theorem-4")
def test_the_output_stage_is_a_gaussian_release_beside_the_objective(family, longest, neighboring):
    """Without curvature both are: no pair of vertices costs less than the longest shift and the output together."""
    for noise, output_mu in ((4.0, 0.7), (1e9, 0.7)):
        event = ObjectivePerturbation(
            family, noise, 1e-12, 0.25, output_mu, n_outputs=1 + (family == "softmax")
        )
        least = gaussian_delta(1.0, math.hypot(neighboring.contributions * longest / noise, output_mu))
        assert least <= objective_delta(event, 1.0, neighboring) <= 4.001 * least


def test_softmax_of_two_classes_is_binary_logistic():
    # w1 - w2 has noise sigma * sqrt(2) on half the curvature: the vertex part is that of the Gaussian mechanism.
    event = ObjectivePerturbation("softmax", 2.0, 1e-9, 0.5, 0.0, 2)
    assert float(objective_delta(event, 0.7, ZERO_OUT)) == pytest.approx(
        float(gaussian_delta(0.7, math.sqrt(2) / 2))
    )


def test_pairs_of_classes_are_counted_right():
    def brute(n_classes, same_label):
        y, y_new, unit, terms = 0, 0 if same_label else 1, np.eye(n_classes), {}
        for certain in range(n_classes):
            w = unit[certain] - unit[y_new]

            def norm(u, w=w):
                return u @ u + w @ w + 2 * abs(u @ w)

            for j, k in itertools.combinations(range(n_classes), 2):
                a, b = unit[j] - unit[y], unit[k] - unit[y]
                key = ((norm(a) + norm(b)) / 4, norm((a + b) / 2))
                terms[key] = terms.get(key, 0) + 1
        return terms

    for n_classes in (2, 3, 4, 5, 8):
        for same_label in (True, False):
            fast = {(m, v): count for count, m, v in _replace_pairs(n_classes, same_label)}
            assert fast == brute(n_classes, same_label)


def exact_delta_1d(loss, first, second, rest, l2, stddev, epsilons):
    """Hockey-stick divergence between the exact densities of a one-dimensional minimizer, by quadrature."""
    reach = (min(len(rest), 20) + 2 + 12 * stddev) / l2
    theta = np.linspace(-reach, reach, 40_001)

    def log_density(records):
        b, curvature = -l2 * theta, np.full_like(theta, l2)
        for x, y in records:
            b = b - x * loss.derivative(y, x * theta)
            curvature = curvature + x * x * loss.second_derivative(y, x * theta)
        return -0.5 * (b / stddev) ** 2 - math.log(stddev * math.sqrt(2 * math.pi)) + np.log(curvature)

    p, q = log_density(rest + first), log_density(rest + second)
    step = theta[1] - theta[0]
    assert np.exp(p).sum() * step == pytest.approx(1.0, abs=1e-3)  # Huber curvature jumps between nodes
    ratio = p - q
    return [float(np.sum(np.exp(p) * np.maximum(0.0, -np.expm1(e - ratio))) * step) for e in epsilons]


LOSSES = {"logistic": Logistic(), "monotone": HuberHinge(0.5), "general": HuberRegression(1.0)}


@settings(max_examples=40, deadline=None)
@given(
    family=st.sampled_from(sorted(LOSSES)),
    l2=st.floats(0.2, 5.0),
    stddev=st.floats(0.6, 4.0),
    rows=st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([-1.0, 1.0])), min_size=2, max_size=5),
    replace=st.booleans(),
    swap=st.booleans(),
)
@pytest.mark.lemma("objective-perturbation.md#theorem-1")
def test_exact_density_in_one_dimension_never_exceeds_the_bound(family, l2, stddev, rows, replace, swap):
    loss = LOSSES[family]
    first, second = [rows[0]], [rows[1]] if replace else []
    if swap:
        first, second = second, first
    epsilons = [0.0, 0.3, 1.0, 2.0]
    exact = exact_delta_1d(loss, first, second, rows[2:], l2, stddev, epsilons)
    event = ObjectivePerturbation(family, stddev / loss.lipschitz, 1 / l2, loss.smoothness, 0.0)
    bound = objective_delta(event, epsilons, REPLACE if replace else ZERO_OUT)
    assert np.all(np.array(exact) <= 1.001 * bound + 1e-9)


@pytest.mark.lemma("objective-perturbation.md#theorem-2")
@pytest.mark.nightly
def test_zero_out_logistic_bound_is_nearly_attained():
    # Many common records saturate the sigmoid, so the worst derivative is almost surely taken.
    exact = exact_delta_1d(Logistic(), [(1.0, 1.0)], [], [(1.0, -1.0)] * 3000, 1.0, 3.0, [1.0])
    event = ObjectivePerturbation("logistic", 3.0, 1.0, 0.25, 0.0)
    bound = float(objective_delta(event, 1.0, ZERO_OUT))
    assert 0.9 * bound <= exact[0] <= bound


def test_published_noise_of_private_erm_is_too_small():
    """The constant sqrt(2 ln 1/delta)/epsilon on a sum, without the replace factor, is caught by an exact density."""
    epsilon, delta = 1.0, 1e-3
    stddev = math.sqrt(2 * math.log(1 / delta)) / epsilon
    exact = exact_delta_1d(HuberRegression(1.0), [(1.0, 50.0)], [(1.0, -50.0)], [], 20.0, stddev, [epsilon])
    assert exact[0] > 3 * delta
    ours = required_noise("general", 20.0, REPLACE, epsilon, delta, smoothness=1.0)
    safe = exact_delta_1d(HuberRegression(1.0), [(1.0, 50.0)], [(1.0, -50.0)], [], 20.0, ours, [epsilon])
    assert safe[0] <= delta


def exact_softmax_delta(first, second, rest, l2, stddev, epsilons, n_classes=3):
    """Exact profile for one feature and three classes: the minimizer lives in the plane of zero sum."""
    basis = np.linalg.qr(np.column_stack([np.ones(3), [1, -1, 0], [1, 1, -2]]))[0][:, 1:]
    line = np.sinh(np.linspace(-1, 1, 401) * 4.2)
    line = line / line.max() * (3 + 11 * stddev) / l2
    weight = np.gradient(line)
    z = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    area = np.outer(weight, weight).ravel()

    def log_density(records):
        b, hessian = -l2 * z, np.tile(l2 * np.eye(2), (len(z), 1, 1))
        for x, y in records:
            raw = x * z @ basis.T
            q = np.exp(raw - raw.max(axis=1, keepdims=True))
            q /= q.sum(axis=1, keepdims=True)
            b = b - x * (q - np.eye(3)[y]) @ basis
            inner = q[:, :, None] * (np.eye(3) - q[:, None, :])
            hessian = hessian + x * x * np.einsum("ai,nab,bj->nij", basis, inner, basis)
        determinant = hessian[:, 0, 0] * hessian[:, 1, 1] - hessian[:, 0, 1] ** 2
        return -0.5 * (b**2).sum(axis=1) / stddev**2 - math.log(2 * math.pi * stddev**2) + np.log(determinant)

    p, q = log_density(rest + first), log_density(rest + second)
    assert np.sum(np.exp(p) * area) == pytest.approx(1.0, abs=2e-4)
    return [float(np.sum(np.exp(p) * area * np.maximum(0.0, -np.expm1(e - (p - q))))) for e in epsilons]


def test_softmax_treated_as_one_dimensional_would_be_false():
    exact = exact_softmax_delta([], [(1.0, 0)], [], 1.0, 3.0, [1.0])[0]
    assert exact == pytest.approx(6.63660e-3, rel=1e-3)
    assert exact > float(gaussian_delta(1.0, math.sqrt(2) / 3))  # the plain profile
    event = ObjectivePerturbation("softmax", 3.0, 1.0, 0.5, 0.0, 3)
    assert exact <= float(objective_delta(event, 1.0, ZERO_OUT))


@pytest.mark.parametrize(
    ("first", "second", "rest", "l2", "stddev", "neighboring"),
    [
        ([(1.0, 0)], [], [], 1.0, 3.0, ZERO_OUT),
        ([(1.0, 0)], [], [], 4.0, 2.0, ZERO_OUT),
        ([(1.0, 0)], [(-1.0, 0)], [], 4.0, 3.0, REPLACE),
        ([(1.0, 0)], [(1.0, 2)], [(1.0, 1)], 4.0, 3.0, REPLACE),
    ],
)
@pytest.mark.lemma("objective-perturbation.md#theorem-3")
def test_exact_softmax_density_never_exceeds_the_bound(first, second, rest, l2, stddev, neighboring):
    epsilons = [0.3, 1.0, 2.0]
    event = ObjectivePerturbation("softmax", stddev, 1 / l2, 0.5, 0.0, 3)
    bound = objective_delta(event, epsilons, neighboring)
    for a, b in ((first, second), (second, first)):
        assert np.all(np.array(exact_softmax_delta(a, b, rest, l2, stddev, epsilons)) <= bound)


@given(
    family=st.sampled_from(["logistic", "monotone", "general", "softmax"]),
    noise=st.floats(0.5, 200),
    leverage=st.floats(1e-4, 2),
    output_mu=st.floats(0, 0.1),
    copies=st.integers(2, 4),
    neighboring=st.sampled_from(list(Neighboring)),
)
@settings(max_examples=60, deadline=None)
def test_profile_is_monotone(family, noise, leverage, output_mu, copies, neighboring):
    def profile(**changes):
        fields = {"noise_multiplier": noise, "leverage": leverage, "output_mu": output_mu} | changes
        event = ObjectivePerturbation(family, smoothness=0.25, n_outputs=copies, **fields)
        return objective_delta(event, np.linspace(0, 5, 11), neighboring)

    base, slack = profile(), 1e-12
    assert np.all(np.diff(base) <= slack)
    assert np.all((base >= 0) & (base <= 1))
    assert np.all(profile(noise_multiplier=1.5 * noise) <= base + slack)
    if family in ("monotone", "general"):
        assert np.all(profile(leverage=2 * leverage) >= base - slack)
    assert np.all(profile(output_mu=output_mu + 0.05) >= base - slack)


@pytest.mark.lemma("objective-perturbation.md#theorem-5")
def test_one_vs_rest_agrees_with_its_closed_form():
    # K models under zero-out with a tangent at 1: sum over m of C(K, m) H(eps - (K - m) lam, sqrt(m) r).
    n_models, noise, leverage, epsilon = 4, 3.0, 0.1, 2.0
    closed = sum(
        math.comb(n_models, m) * gaussian_delta(epsilon - (n_models - m) * leverage, math.sqrt(m) / noise)
        for m in range(n_models + 1)
    )
    event = ObjectivePerturbation("logistic", noise, leverage, 0.25, 0.0, n_models)
    found = float(objective_delta(event, epsilon, ZERO_OUT))
    assert found <= float(closed) * (1 + 1e-12)
    assert found >= float(gaussian_delta(epsilon, math.sqrt(n_models) / noise))


def test_negative_epsilon_is_refused():
    with pytest.raises(ValueError, match="epsilon >= 0"):
        objective_delta(ObjectivePerturbation("logistic", 1.0, 1.0, 0.25, 0.0), -0.1, REPLACE)
