"""Any loss in any set: against closed forms, against other estimators, and what is refused."""

import numpy as np
import pytest

from discreet import GradientLoss, Ledger, PrivateERM, PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.audit.worst_pairs import worst_pair
from discreet.losses import Absolute, Hinge, HuberRegression, Linear, Logistic, Softmax
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.sets import L1Ball, L2Ball, Simplex
from discreet.solvers import MirrorDescent, NoisyGradientDescent, base
from discreet.solvers.gradients.mirror_descent import MirrorDescentPlan

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 3)) / 3
SIGNS = np.where(X @ [1.0, -2.0, 0.5] + 0.1 * RNG.normal(size=3000) > 0, 1.0, -1.0)


def toward(theta, x, y):
    return theta - x


def toward_all(theta, rows, y):
    return theta - rows


def quarter_hinge(theta, x, y):
    """A hinge in x and a quadratic in the last parameter: no linear model."""
    slope = -y if y * (x @ theta[:-1]) < 1 else 0.0
    return np.append(slope * x, theta[-1] - y)


def test_a_linear_loss_gives_the_model_of_its_estimator():
    """The same plan, rows and noise, whichever way one asks."""
    for loss, kind in ((Logistic(), PrivateLogisticRegression), (Hinge(), PrivateLinearSVC)):
        own = {"huber_width": 0.0} if kind is PrivateLinearSVC else {}
        with insecure_noise(1):
            model = kind(1.0, 1e-6, classes=[-1, 1], solver="noisy-gd", **own).fit(X, SIGNS)
        with insecure_noise(1):
            same = PrivateERM(loss, epsilon=1.0, delta=1e-6, solver="noisy-gd").fit(X, SIGNS)
        assert np.array_equal(same.coef_, model.coef_[0])
        assert same.intercept_ == model.intercept_[0]
        assert np.array_equal(np.sign(same.predict(X)), model.predict(X))
        assert same.privacy_.event == model.privacy_.event


def test_the_linear_loss_finds_the_corner_of_the_mean():
    """Over the simplex it is minimized by the column of the largest mean."""
    rows = np.abs(RNG.normal(size=(4000, 4))) / 4
    rows[:, 2] += 0.3
    model = PrivateERM(Linear(), Simplex(1.0, 4), epsilon=2.0, fit_intercept=False).fit(rows, np.ones(4000))
    assert np.argmax(model.coef_) == 2
    assert model.coef_[2] > 0.8


@pytest.mark.parametrize(
    "solver", ["auto", "noisy-gd", MirrorDescent(potential="squared-norm", n_iterations=60)]
)
@pytest.mark.parametrize("batch", [False, True])
def test_own_gradients_find_the_mean_as_noise_vanishes(solver, batch):
    loss = GradientLoss(toward_all if batch else toward, 8.0, batch=batch, convex=True, smoothness=1.0)
    model = PrivateERM(loss, L2Ball(2.0, 3), epsilon=1e4, delta=1e-6, solver=solver).fit(X[:400])
    assert model.coef_ == pytest.approx(X[:400].mean(axis=0), abs=0.02)
    assert not hasattr(model, "predict")


def test_rows_and_batches_give_the_same_model():
    made = []
    for batch in (False, True):
        loss = GradientLoss(toward_all if batch else toward, 1.0, batch=batch)
        with insecure_noise(2):
            made.append(PrivateERM(loss, L2Ball(2.0, 3), epsilon=1.0).fit(X[:300]))
    assert np.array_equal(made[0].coef_, made[1].coef_)
    assert "same bits" not in str(made[0].privacy_)
    assert "same bits" in " ".join(str(made[1].privacy_).split())


def test_a_certificate_needs_a_declared_convexity():
    plans = [
        PrivateERM(GradientLoss(toward, 1.0, convex=convex), L2Ball(1.0, 3)).plan(500, 3)
        for convex in (False, True)
    ]
    assert "excess risk" not in str(plans[0])
    assert "excess risk" in str(plans[1])
    fits = [
        PrivateERM(GradientLoss(toward, 2.0, convex=convex), L2Ball(1.0, 3), epsilon=5.0).fit(X[:200])
        for convex in (False, True)
    ]
    assert not hasattr(fits[0], "certificate_")
    excess = 0.5 * np.sum((fits[1].coef_ - X[:200].mean(axis=0)) ** 2)  # of half the mean squared distance
    assert excess <= fits[1].certificate_.likely


@pytest.mark.nightly
def test_a_loss_of_several_parts_learns():
    model = PrivateERM(GradientLoss(quarter_hinge, 3.0), L2Ball(6.0, 4), epsilon=20.0).fit(
        X[:1000], SIGNS[:1000]
    )
    assert np.mean(np.sign(X @ model.coef_[:3]) == SIGNS) > 0.85
    assert model.coef_[3] == pytest.approx(SIGNS[:1000].mean(), abs=0.3)


@pytest.mark.parametrize(
    "name", sorted(set(base.names()) - {"auto", "noisy-gd", "noisy-sgd", "mirror-descent"})
)
def test_solvers_that_need_more_than_gradients_are_refused_by_name(name):
    model = PrivateERM(GradientLoss(toward, 1.0), L2Ball(1.0, 3), solver=name)
    if name in ("noisy-gd-dissertation", "mirror-descent-talwar"):
        assert model.plan(100, 3).problem.loss.clip == 1.0
        return
    with pytest.raises(ValueError, match=rf"'{name}' does not support a GradientLoss: it .*mirror-descent"):
        model.plan(100, 3)


def broken(theta, x, y):
    return x[:1]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (PrivateERM(), "loss must be given"),
        (PrivateERM("hinge"), "GradientLoss"),
        (PrivateERM(GradientLoss(toward, 1.0)), "constraint must be given"),
        (PrivateERM(GradientLoss(broken, 1.0), L2Ball(1.0, 3)), "must return numbers of shape"),
        (PrivateERM(Hinge(), solver="objective"), "does not have everywhere"),
        (PrivateERM(Hinge(), solver="psgd"), "psgd"),
        (PrivateERM(Hinge(), neighboring="add-remove-one", n_samples=3000), "add-remove-one"),
        (PrivateERM(Hinge(), L2Ball(1.0, 9)), "9 numbers"),
        (PrivateERM(Absolute(), solver="exponential", delta=0.0), "label_bound"),
        (PrivateERM(Hinge(), label_bound=-1.0), "label_bound"),
    ],
)
def test_what_is_not_proved_is_refused_before_the_charge(model, message, tmp_path):
    model.ledger = ledger = Ledger(tmp_path / "budget.db", 10.0, 0.1)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, SIGNS)
    assert ledger.history() == []


def test_labels_that_the_loss_does_not_take_are_refused_or_null():
    with pytest.raises(ValueError, match="y holds 1 labels that Hinge"):
        PrivateERM(Hinge()).fit(X, np.append(SIGNS[1:], 3.0))
    kept, dropped = SIGNS.copy(), SIGNS.copy()
    dropped[5] = 3.0
    rows = X.copy()
    rows[5] = np.nan
    made = []
    for data, labels in ((rows, kept), (X, dropped)):
        with insecure_noise(3):
            made.append(PrivateERM(Hinge(), epsilon=1.0, bad_rows="null").fit(data, labels).coef_)
    assert np.array_equal(*made)  # a null record, for whichever reason


def test_labels_are_clipped_to_their_bound():
    made = []
    for labels in (SIGNS, 100.0 * SIGNS):
        with insecure_noise(4):
            made.append(PrivateERM(HuberRegression(0.5), epsilon=1.0, label_bound=1.0).fit(X, labels).coef_)
    assert np.array_equal(*made)


def test_pure_privacy_for_corners_by_exponential_sampling():
    plan = PrivateERM(Hinge(), delta=0.0, epsilon=2.0).plan(400, 2)
    assert "exponential" in plan.reason
    assert plan.guarantee.delta == 0
    plan = PrivateERM(Absolute(), delta=0.0, epsilon=2.0, label_bound=1.0, constraint=L2Ball(1.0, 3)).plan(
        400, 2
    )
    assert "exponential" in plan.reason


@pytest.mark.lemma("own-losses.md#section-4")
def test_absolute_errors_are_robust():
    y = np.clip(X @ [0.5, -0.5, 0.2] + 0.2, -1, 1)
    y[::10] = 1.0
    model = PrivateERM(Absolute(), epsilon=5.0, label_bound=1.0, feature_bound=2.0).fit(X, y)
    assert model.coef_ == pytest.approx([0.5, -0.5, 0.2], abs=0.15)
    assert model.intercept_ == pytest.approx(0.2, abs=0.1)


def test_several_outputs_and_people_with_several_rows():
    y = np.digitize(X[:, 0], [-0.1, 0.1]).astype(float)
    model = PrivateERM(Softmax(3, margin=1.0), epsilon=5.0, max_rows_per_group=2)
    model.fit(X, y, groups=np.arange(3000) // 2)
    assert model.coef_.shape == (3, 3)
    assert np.mean(model.predict(X).argmax(axis=1) == y) > 0.6
    assert model.privacy_.guarantee.unit == "user"


def test_sampling_of_rows_under_zero_out():
    model = PrivateERM(
        GradientLoss(toward, 2.0), L2Ball(1.0, 3), solver="noisy-sgd", neighboring="zero-out", epsilon=50.0
    ).fit(X[:500])
    assert np.all(np.isfinite(model.coef_))


def sign_times_row(theta, x, y):
    """As steep as the clip allows, whatever theta is."""
    return -100.0 * (1 if y > 0 else -1) * x


@pytest.mark.parametrize("neighboring", ["replace-one", "zero-out"])
@pytest.mark.parametrize("solver", [MirrorDescent(n_iterations=20), NoisyGradientDescent(n_iterations=20)])
def test_a_replay_finds_what_own_gradients_declare(solver, neighboring):
    model = PrivateERM(
        GradientLoss(sign_times_row, 1.0), L1Ball(1.0, 2), epsilon=1.0, delta=1e-2, solver=solver,
        neighboring=neighboring, bad_rows="null",
    )  # fmt: skip
    pair = worst_pair(neighboring, n_rest=60)
    found = replay(fitting(model), pair.first, pair.second)
    assert found.passed, str(found)
    assert 0.9 <= found.worst_ratio <= 1.0


def test_a_twin_with_half_the_noise_is_caught(monkeypatch):
    calibrated = MirrorDescent._planned

    def halved(self, *arguments):
        plan = calibrated(self, *arguments)
        return Halved(
            plan.problem, plan.record_guarantee, plan.potential, plan.n_iterations, plan.noise_multiplier
        )

    class Halved(MirrorDescentPlan):
        """Charges for all of the noise, and adds half."""

        def run(self, records, entropy, progress=None):
            half = MirrorDescentPlan(
                self.problem,
                self.record_guarantee,
                self.potential,
                self.n_iterations,
                self.noise_multiplier / 2,
            )
            return half.run(records, entropy, progress)

    monkeypatch.setattr(MirrorDescent, "_planned", halved)
    model = PrivateERM(
        GradientLoss(sign_times_row, 1.0), L2Ball(1.0, 2), epsilon=1.0, delta=1e-2, bad_rows="null"
    )
    pair = worst_pair("replace-one", n_rest=60)
    found = replay(fitting(model), pair.first, pair.second)
    assert not found.passed
