"""The contract of `discreet.losses.Loss`: all losses of the package, one of a user, the one that CONTRIBUTING prints.

A check takes a loss and fails where the loss promises too much. The twins at the end promise too much on purpose.
"""

import inspect
import itertools
import math
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))
import recipes

from discreet import losses
from discreet.losses import (
    Absolute,
    CappedLogistic,
    CappedSoftmax,
    ClassWeighted,
    GradientLoss,
    Hinge,
    HuberHinge,
    HuberRegression,
    Linear,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
)
from discreet.losses.base import MEANINGS
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.guarantee import SLACK, Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.sets import L2Ball
from discreet.solvers import base


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - y t)^2 / 2 for |y t| <= 9, then a line: what a user may write, with no more than the contract asks."""

    lipschitz = 10.0
    smoothness = 1.0
    evaluation_error = 4.0

    def valid_labels(self, y):
        return np.isin(y, (-1.0, 1.0))

    def value(self, y, raw_prediction):
        short = np.maximum(0.0, 1.0 - np.multiply(y, raw_prediction))
        return np.minimum(short, 10.0) * (short - 0.5 * np.minimum(short, 10.0))

    def derivative(self, y, raw_prediction):
        return -np.asarray(y) * np.clip(1.0 - np.multiply(y, raw_prediction), 0.0, 10.0)

    def second_derivative(self, y, raw_prediction):
        z = np.multiply(y, raw_prediction)
        return np.where((z <= 1.0) & (z >= -9.0), 1.0, 0.0)


RECIPE, RECIPE_CODE = recipes.LOSS, recipes.LOSS_CODE
PACKAGE = [
    Logistic(), CappedLogistic(0.6), CappedLogistic(0.3), CappedLogistic(1.0), HuberHinge(0.5), HuberHinge(0.05),
    Hinge(), Squared(2.0, 1.0), Squared(0.5, 3.0), HuberRegression(1.0), HuberRegression(0.1), Quantile(0.3, 0.1),
    Quantile(0.9, 0.5), Poisson(1.5, 3.0), Poisson(0.5, 20.0), Linear(1.0), Linear(2.0), Softmax(2), Softmax(4),
    CappedSoftmax(4, 0.3), CappedSoftmax(3, math.sqrt(2)), Softmax(3, margin=2.0), Softmax(2, margin=0.5),
    CappedSoftmax(3, 0.4, margin=1.0), Absolute(),
    ClassWeighted(Logistic(), (1.0, 5.0)), ClassWeighted(HuberHinge(0.5), (0.3, 0.1)),
    ClassWeighted(Hinge(), (1.0, 2.0)), ClassWeighted(Softmax(3), (1.0, 4.0, 0.5)),
    ClassWeighted(Softmax(3, margin=1.0), (1.0, 2.0, 3.0)),
]  # fmt: skip
LOSSES = [*PACKAGE, SquaredHinge(), RECIPE.LogCosh()]
#: Declared above what is attained: below a cap of 1/2 the logistic curvature never reaches 1/4, and Linear has none.
LOOSE = [CappedLogistic(0.3), Linear(1.0), Linear(2.0)]
REACHES = (0.0, 0.3, 1.0, 4.0)
LABELS_UP_TO = 2.0  # for losses that bound no label


def labels(loss):
    """Valid labels, the extreme ones among them."""
    bound = loss.label_bound or LABELS_UP_TO
    candidates = np.unique([*np.linspace(-bound, bound, 13), *range(loss.n_outputs)])
    return candidates[loss.valid_labels(candidates)]


def grid(loss, reach=8.0):
    """Pairs of a label and raw predictions that reach everywhere within [-reach, reach]."""
    if loss.n_outputs == 1:
        return [(y, np.linspace(-reach, reach, 4001)) for y in labels(loss)]
    rng = np.random.default_rng(0)
    lone = np.vstack([reach * np.eye(loss.n_outputs), -reach * np.eye(loss.n_outputs)])
    pairs = [reach * (np.eye(loss.n_outputs)[a] + np.eye(loss.n_outputs)[b]) for a, b in ((0, 1), (1, 0))]
    t = np.vstack([rng.uniform(-reach, reach, (1500, loss.n_outputs)), lone, pairs, 0 * lone[:1]])
    return [(np.full(len(t), y), t) for y in labels(loss)]


def size(loss, derivatives):
    return np.abs(derivatives) if loss.n_outputs == 1 else np.linalg.norm(derivatives, axis=-1)


def computed(loss, bound):
    """What a computed length of several entries may be, if the exact one is at most ``bound``."""
    return bound if loss.n_outputs == 1 else bound * (1 + (loss.evaluation_error + loss.n_outputs) * 2.0**-53)


def curvature(loss, bends):
    """Smallest and largest eigenvalues."""
    if loss.n_outputs == 1:
        return bends.min(), bends.max()
    values = np.linalg.eigvalsh(bends)
    return values.min(), values.max()


def directions(loss):
    return [1.0] if loss.n_outputs == 1 else np.eye(loss.n_outputs)


def along(derivatives, direction):
    return derivatives if np.ndim(direction) == 0 else derivatives @ direction


def check_derivative_is_that_of_the_value(loss):
    """A difference quotient of a convex function lies between the derivatives at both ends, at corners too."""
    if "convex" not in loss.proved_for and loss.n_outputs > 1:
        return  # a field of vectors that is no gradient
    h = 1e-6
    for (y, t), e in itertools.product(grid(loss), directions(loss)):
        up, down = t + h * np.asarray(e), t - h * np.asarray(e)
        high, low = loss.value(y, up), loss.value(y, down)
        rounding = 4e-16 * (1 + np.abs(high).max()) / h + 1e-9
        quotient = (high - low) / (2 * h)
        assert np.all(quotient <= along(loss.derivative(y, up), e) + rounding)
        assert np.all(quotient >= along(loss.derivative(y, down), e) - rounding)


def check_second_derivative_is_that_of_the_derivative(loss):
    if "convex" not in loss.proved_for and loss.n_outputs > 1:
        return
    h = 1e-6
    for (y, t), k in itertools.product(grid(loss), range(loss.n_outputs)):
        e = directions(loss)[k]
        up, down = t + h * np.asarray(e), t - h * np.asarray(e)
        quotient = (loss.derivative(y, up) - loss.derivative(y, down)) / (2 * h)
        bends = [loss.second_derivative(y, at) for at in (down, t, up)]
        bends = bends if loss.n_outputs == 1 else [bend[..., k] for bend in bends]
        steady = np.abs(bends[2] - bends[0]) <= 1e-4 * (1 + np.abs(bends[1]))
        if math.isinf(loss.smoothness):
            steady &= loss.derivative(y, up) == loss.derivative(y, down)
        assert steady.mean() > 0.99
        scale = 1 + np.abs(loss.derivative(y, t)).max() + np.abs(bends[1]).max()
        np.testing.assert_allclose(quotient[steady], bends[1][steady], atol=1e-4 * scale)


def check_constants_are_never_exceeded(loss):
    for reach in (1.0, 8.0, 60.0, 1e6, 1e150):
        for y, t in grid(loss, reach):
            assert size(loss, loss.derivative(y, t)).max() <= computed(loss, loss.lipschitz)
            least, largest = curvature(loss, loss.second_derivative(y, t))
            assert least >= -1e-15
            assert largest <= loss.smoothness


def check_constants_are_attained(loss):
    slopes, bends = [], []
    for y, t in [*grid(loss), *grid(loss, 60.0), *grid(loss, 1.0)]:
        slopes.append(size(loss, loss.derivative(y, t)).max())
        bends.append(curvature(loss, loss.second_derivative(y, t))[1])
    assert max(slopes) >= loss.lipschitz * (1 - 1e-3)
    if loss not in LOOSE and math.isfinite(loss.smoothness):
        assert max(bends) >= loss.smoothness * (1 - 1e-3)


def check_convexity(loss):
    if "convex" not in loss.proved_for:
        return
    rng = np.random.default_rng(1)
    for y, t in grid(loss):
        other = t + rng.normal(size=t.shape) * rng.choice([0.01, 1.0], t.shape)
        rise = (loss.derivative(y, other) - loss.derivative(y, t)) * (other - t)
        rise, square = (rise, (other - t) ** 2) if t.ndim == 1 else (rise.sum(-1), ((other - t) ** 2).sum(-1))
        assert rise.min() >= -1e-14
        assert np.all(rise <= loss.smoothness * square * (1 + 1e-6) + 1e-14)


def check_family(loss):
    assert loss.family in (
        ("softmax", "general") if loss.n_outputs > 1 else ("general", "monotone", "logistic")
    )
    for y, t in grid(loss):
        slopes, bends = loss.derivative(y, t), loss.second_derivative(y, t)
        if loss.family in ("logistic", "monotone"):
            assert np.all(slopes >= 0) or np.all(slopes <= 0)
        if loss.family == "logistic":
            np.testing.assert_allclose(bends, np.abs(slopes) * (1 - np.abs(slopes)), atol=1e-15)
        if loss.family == "softmax":
            q = loss.probabilities(t, y)
            np.testing.assert_allclose(bends, q[..., None] * (np.eye(q.shape[1]) - q[:, None, :]), atol=1e-15)


def check_evaluation_error(loss):
    """Finite wherever the derivative is continuous."""
    assert loss.evaluation_error >= 0
    assert math.isinf(loss.evaluation_error) <= math.isinf(loss.smoothness)


def check_value_at_zero(loss):
    if math.isinf(loss.value_at_zero):
        return
    t = 0.0 if loss.n_outputs == 1 else np.zeros((1, loss.n_outputs))
    at_zero = max(float(np.ravel(loss.value([y], t))[0]) for y in labels(loss))
    assert at_zero <= loss.value_at_zero <= at_zero * (1 + 1e-12)
    assert min(loss.value(y, t).min() for y, t in grid(loss)) >= 0


def enforced(loss):
    """The bound on labels that a caller enforces."""
    return LABELS_UP_TO if loss.label_bound is None else loss.label_bound


def check_derivative_bound(loss):
    for reach in REACHES:
        bound, plain = loss.derivative_bound(reach, enforced(loss)), loss.derivative_bound(reach)
        worst = max(size(loss, loss.derivative(y, t)).max() for y, t in grid(loss, reach))
        assert worst <= computed(loss, bound)
        assert bound <= plain <= loss.lipschitz
        if type(getattr(loss, "loss", loss)).derivative_bound is not Loss.derivative_bound:
            assert worst >= bound * (1 - 1e-9)


def check_gradient_gap(loss):
    if loss.n_outputs > 1:
        assert loss.gradient_gap(1.0) == 2 * loss.lipschitz
        return
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(2, 20_000, 2))
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    y = rng.choice(labels(loss), (2, 20_000))
    for reach in REACHES:
        gradients = loss.derivative(y, rows @ np.array([reach, 0.0]))[..., None] * rows
        worst = np.linalg.norm(gradients[0] - gradients[1], axis=-1).max()
        assert worst <= loss.gradient_gap(reach) <= 2 * loss.derivative_bound(reach)
        if loss.gradient_gap(reach) < 2 * loss.derivative_bound(reach):
            assert worst >= 0.97 * loss.gradient_gap(reach)


def check_value_range(loss):
    if loss.n_outputs > 1:
        return
    for reach in REACHES:
        declared, plain = loss.value_range(reach, enforced(loss)), loss.value_range(reach)
        worst = max(np.ptp(loss.value(y, t)) for y, t in grid(loss, reach))
        assert worst <= declared <= plain <= 2 * reach * loss.lipschitz * SLACK
        if type(loss).value_range is not Loss.value_range:
            assert worst >= declared * (1 - 1e-9) - 1e-9


def check_capped(loss):
    if type(loss).capped is Loss.capped:
        assert "likelihood" not in loss.proved_for
        with pytest.raises(ValueError, match="cap applies"):
            loss.capped(1.0)
        return
    capped = loss.capped(loss.lipschitz / 2)
    assert loss.capped(loss.lipschitz) is loss
    assert capped.lipschitz == loss.lipschitz / 2
    assert capped.n_outputs == loss.n_outputs
    for y, t in grid(loss):
        full = loss.derivative(y, t)
        held = capped.derivative(y, t)
        shrink = np.minimum(1.0, capped.lipschitz / np.maximum(size(loss, full), 1e-300))
        np.testing.assert_allclose(held, full * (shrink if full.ndim == 1 else shrink[:, None]), atol=1e-15)


def check_theorems(loss):
    assert loss.proved_for <= MEANINGS.keys()
    if "counted" in loss.proved_for:
        assert loss.kernel is not None
        assert loss.n_outputs == 1
    for y, t in grid(loss):
        if "quadratic" in loss.proved_for:
            inside = t[np.abs(t) <= loss.prediction_bound]
            np.testing.assert_allclose(loss.value(y, inside), (inside - y) ** 2 / 2, rtol=1e-14, atol=1e-15)
        if "single-peaked" in loss.proved_for:
            turns = np.sign(np.round(np.diff(loss.second_derivative(y, t)), 14))
            assert np.all(np.diff(turns[turns != 0]) <= 0), "f'' falls and then rises"
            for reach in REACHES:
                inside = loss.value(y, t[np.abs(t) <= reach])
                assert np.abs(inside).max() <= loss.value_scale(reach, abs(y))
        if math.isfinite(loss.curvature_slope):
            bends = loss.second_derivative(y, t)
            assert np.abs(np.diff(bends)).max() <= loss.curvature_slope * (t[1] - t[0])


def check_passes_over_rows_agree_with_numpy(loss):
    """Whether compiled or not, over dense and CSR rows; as sharp as the order of the sums allows."""
    rng = np.random.default_rng(3)
    for n, width, scale in ((300, 3, 1.0), (150, 40, 30.0)):
        X = rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.6)
        y = rng.choice(labels(loss), n)
        theta = scale * rng.normal(size=(width + 1, *((loss.n_outputs,) if loss.n_outputs > 1 else ())))
        for rows in (X, X.astype(np.float32), sp.csr_matrix(X)):
            records = ArrayRecords(rows, y, Bounds(1.0), null_rows=np.arange(n) % 50 == 7)
            v = np.column_stack([records.dense(slice(None)), np.ones(n)]) * records.scales[:, None]
            used, raw = records.scales > 0, v @ theta
            value, gradient = records.value_and_gradient(loss, theta)
            expected = loss.value(y[used], raw[used])
            assert value == pytest.approx(expected.sum(), rel=1e-12, abs=1e-12 * np.abs(expected).sum())
            exact = v[used].T @ loss.derivative(y[used], raw[used])
            allowed = records.gradient_rounding(loss, float(np.linalg.norm(theta)))
            if math.isinf(allowed):  # where a derivative jumps, no bound is declared
                allowed = 1e-12 * n
            assert np.linalg.norm(gradient - exact) <= 2 * allowed
            assert 2 * allowed < 1e-6 * n


def check_identity(loss):
    copy = pickle.loads(pickle.dumps(loss))
    assert copy == loss
    assert hash(copy) == hash(loss)
    assert eval(repr(loss), {**vars(losses), type(loss).__name__: type(loss)}) == loss
    assert loss in {loss}


CHECKS = {name: check for name, check in dict(globals()).items() if name.startswith("check_")}


@pytest.mark.lemma("own-losses.md#theorem-2")
@pytest.mark.lemma("class-weights.md#theorem-1")
@pytest.mark.parametrize("check", CHECKS.values(), ids=[name[len("check_") :] for name in CHECKS])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_contract(loss, check):
    check(loss)


def test_every_loss_of_the_package_is_listed():
    exported = {getattr(losses, name) for name in losses.__all__}
    concrete = {thing for thing in exported if isinstance(thing, type) and not inspect.isabstract(thing)}
    linear = {kind for kind in concrete if issubclass(kind, Loss)} - {
        GradientLoss
    }  # tests/losses/test_row_gradients.py
    assert {type(loss) for loss in PACKAGE} == linear


def twin(**claims):
    """A user's loss that claims something else."""
    return type("Twin", (SquaredHinge,), claims)()


@pytest.mark.parametrize(
    ("loss", "check"),
    [
        (twin(lipschitz=9.0), check_constants_are_never_exceeded),
        (twin(lipschitz=11.0), check_constants_are_attained),
        (twin(smoothness=0.9), check_constants_are_never_exceeded),
        (twin(smoothness=1.1), check_constants_are_attained),
        (twin(smoothness=0.9, proved_for=frozenset({"convex"})), check_convexity),
        (twin(derivative=lambda self, y, t: -0.9 * np.asarray(y) * np.clip(1 - y * t, 0, 10)),
         check_derivative_is_that_of_the_value),
        (twin(second_derivative=lambda self, y, t: np.where(y * t <= 1, 0.9, 0.0)),
         check_second_derivative_is_that_of_the_derivative),
        (twin(family="logistic"), check_family),
        (twin(family="monotone", derivative=lambda self, y, t: np.tanh(t)), check_family),
        (twin(value_at_zero=0.4), check_value_at_zero),
        (twin(evaluation_error=math.inf), check_evaluation_error),
        (twin(derivative_bound=lambda self, reach, label_bound=None: 0.9 + reach), check_derivative_bound),
        (twin(gradient_gap=lambda self, reach: 1.9 + reach), check_gradient_gap),
        (twin(value_range=lambda self, reach, label_bound=None: reach), check_value_range),
        (twin(proved_for=frozenset({"quadratic"})), check_theorems),
        (twin(proved_for=frozenset({"counted"})), check_theorems),
        (twin(curvature_slope=1.0), check_theorems),
        (twin(proved_for=frozenset({"single-peaked"}), value_scale=lambda *_: 0.1), check_theorems),
        (twin(proved_for=frozenset({"likelihood"})), check_capped),
        (twin(kernel=HuberHinge(0.5).kernel), check_passes_over_rows_agree_with_numpy),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)  # fmt: skip
def test_a_false_claim_is_caught(loss, check):
    with pytest.raises(AssertionError):
        check(loss)


def test_a_loss_must_say_everything_that_a_proof_needs():
    with pytest.raises(TypeError, match=r"abstract.*evaluation_error.*lipschitz.*smoothness.*valid_labels"):
        type("Empty", (Loss,), {})()


@pytest.mark.parametrize("kind", sorted({type(loss) for loss in PACKAGE}, key=lambda kind: kind.__name__))
def test_no_class_inherits_what_was_proved_for_another_formula(kind):
    with pytest.raises(TypeError, match=f"cannot be made from {kind.__name__}"):
        type("Steeper", (kind,), {"derivative": lambda self, y, t: 2.0})


def test_the_printed_recipe_is_short():
    assert len(RECIPE_CODE.strip().splitlines()) <= 30


def outcomes(loss, delta):
    """What every solver makes of a loss: a model or a refusal."""
    rng = np.random.default_rng(4)
    n, p, bound = 60, 3, LABELS_UP_TO
    X, y = rng.normal(size=(n, p)), rng.choice(labels(loss), n)
    found = {}
    for solver, geometry in itertools.product(base.names(), (None, L2Ball(2.0, p))):
        problem = Problem(loss, Bounds(1.0, False), n, p, geometry=geometry, label_bound=bound)
        guarantee = Guarantee(1.0, delta, Neighboring.ZERO_OUT)
        try:
            plan = base.resolve(solver).plan(problem, guarantee)
        except ValueError as refusal:
            found[solver, geometry is None] = str(refusal)
            continue
        with insecure_noise(5):
            found[solver, geometry is None] = plan.run(
                [ArrayRecords(X, y, problem.bounds)], fresh_entropy()
            ).theta
    return found


@pytest.mark.parametrize("delta", [1e-4, 0.0], ids=["delta", "pure"])
@pytest.mark.parametrize("loss", [SquaredHinge(), RECIPE.LogCosh()], ids=str)
def test_solvers_take_a_loss_of_a_user_by_what_is_proved(loss, delta):
    found = outcomes(loss, delta)
    assert all(isinstance(model, str) or np.all(np.isfinite(model)) for model in found.values())
    fits = {solver for (solver, _), model in found.items() if not isinstance(model, str)}
    needs_convex = {"objective", "output", *(["psgd"] if delta else [])}
    assert needs_convex & fits == (needs_convex if "convex" in loss.proved_for else set())
    if delta:
        assert {"noisy-gd", "noisy-sgd", "mirror-descent"} <= fits
        assert not isinstance(found["auto", True], str)
    for solver, theorem in {
        "newton": "second-order",
        "statistics": "quadratic",
        "exponential": "single-peaked",
    }.items():
        assert solver not in fits
        if delta or solver == "exponential":
            refusal = f"solver {solver!r} does not support the loss {loss}: it needs {MEANINGS[theorem]}"
            assert refusal in found[solver, True]
