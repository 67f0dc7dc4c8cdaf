"""Replays: the shipped estimators pass on their worst neighbors, and every known-bad twin fails the check it should."""

import importlib
import pkgutil
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

import discreet
import discreet.solvers
from discreet import PrivateLinearSVC, PrivateLogisticRegression
from discreet.audit.replay import CHECKS, replay
from discreet.audit.trace import Weakener, difference, fitting, frozen, running, trace
from discreet.audit.worst_pairs import neighbors_of, worst_pair
from discreet.mechanisms.additive import GaussianMechanism, LaplaceMechanism
from discreet.mechanisms.recording import Recorder, observed, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.privacy.guarantee import Sensitivity
from discreet.sets import L1Ball, L2Ball
from discreet.solvers import base

sys.path.insert(0, str(Path(__file__).parent))
import twins

RELATIONS = ["replace-one", "zero-out", "add-remove-one"]
KINDS = [PrivateLogisticRegression, PrivateLinearSVC]

for module in pkgutil.walk_packages(discreet.solvers.__path__, "discreet.solvers."):
    importlib.import_module(module.name)


def make(kind, neighboring="replace-one", n_classes=2, **parameters):
    declared = 50 if neighboring == "add-remove-one" else None
    classes = list(range(n_classes))
    parameters = {
        "neighboring": neighboring,
        "classes": classes,
        "bad_rows": "null",
        "n_samples": declared,
    } | parameters
    return kind(1.0, 1e-2, **parameters)


# -- what is shipped passes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("neighboring", RELATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_estimators_pass_and_the_worst_pair_comes_close(kind, neighboring, fit_intercept, n_classes):
    pair = worst_pair(neighboring, n_rest=3, fit_intercept=fit_intercept)
    found = replay(
        fitting(make(kind, neighboring, n_classes, fit_intercept=fit_intercept)), pair.first, pair.second
    )
    assert found.passed, str(found)
    assert 0.999 < found.worst_ratio <= 1.0


@pytest.mark.parametrize("feature_bound", [0.01, 30.0])
def test_other_bounds(feature_bound):
    pair = worst_pair("replace-one", n_rest=2, feature_bound=feature_bound)
    model = make(PrivateLogisticRegression, feature_bound=feature_bound)
    found = replay(fitting(model), pair.first, pair.second)
    assert found.passed, str(found)
    assert 0.99 < found.worst_ratio <= 1.0


@pytest.mark.parametrize("name", base.names())
@pytest.mark.parametrize("kind", KINDS)
def test_every_registered_solver_that_fits_a_classifier(name, kind):
    """No code per solver: whoever registers is replayed."""
    planned = 0
    for neighboring in ("replace-one", "zero-out"):
        model = make(kind, neighboring, solver=name)
        try:
            model.plan(4, 2, 2)
        except (ValueError, TypeError):
            continue  # no solver for this problem under this relation
        planned += 1
        pair = worst_pair(neighboring, n_rest=60)
        found = replay(fitting(model), pair.first, pair.second)
        assert found.passed, str(found)
    if not planned:
        pytest.skip(f"{name} does not plan for {kind.__name__}")


SETS = (None, L2Ball(1.0, 2), L1Ball(1.0, 2))
QUICK = sorted(set(base.names()) - {"exponential", "localized"})  # which take long to draw


@pytest.mark.parametrize("name", QUICK)
def test_several_models_together_move_and_cost_as_much_as_declared(name):
    """One record moves the models of all classes at once. With so much ridge the slope of a hinge is 1 everywhere."""
    for constraint in SETS:
        model = make(
            PrivateLinearSVC,
            "zero-out",
            n_classes=3,
            solver=name,
            l2=200.0,
            constraint=constraint,
            multi_class="ovr",
        )
        try:
            plan = model.plan(5, 1, 3)
        except (ValueError, TypeError):
            continue  # no solver for this problem over this set
        pair = worst_pair("zero-out", n_rest=4, n_columns=1)
        found = replay(fitting(model), pair.first, pair.second, skip={"repeatable"})
        assert plan.problem.n_models == 3
        assert found.passed, str(found)
        assert found.worst_input_ratio is None or 0.999 < found.worst_input_ratio <= 1.0
        return
    pytest.skip(f"{name} fits no support vector machines")


@pytest.mark.parametrize("name", ["newton", "noisy-gd", "objective", "output"])
def test_classes_that_share_a_loss_with_a_margin(name):
    for neighboring in ("replace-one", "zero-out"):
        model = make(
            PrivateLinearSVC, neighboring, n_classes=3, solver=name, multi_class="joint", huber_width=0.5
        )
        assert model.plan(62, 2, 3).problem.loss.margin == 1.0
        pair = worst_pair(neighboring, n_rest=60)
        found = replay(fitting(model), pair.first, pair.second)
        assert found.passed, str(found)


REGRESSORS = ["PrivateRidge", "PrivateLinearRegression", "PrivateHuberRegressor", "PrivateQuantileRegressor"]


@pytest.mark.parametrize("neighboring", ["replace-one", "zero-out"])
@pytest.mark.parametrize("name", [*REGRESSORS, "PrivateLasso"])
def test_regressors(name, neighboring):
    kind = getattr(discreet, name)
    X = np.vstack([[[1e3, 0.0]], np.random.default_rng(0).normal(size=(20, 2))])
    pair = neighbors_of(X, np.ones(21), 0, neighboring, [-1e3, 0.0], 1.0)
    model = kind(1.0, 1e-2, neighboring=neighboring, bad_rows="null", target_bounds=(-1.0, 1.0))
    found = replay(fitting(model), pair.first, pair.second)
    assert found.passed, str(found)
    assert 0.9 < found.worst_ratio <= 1.0


@pytest.mark.parametrize("neighboring", ["replace-one", "zero-out"])
@pytest.mark.parametrize("method", ["bias", "profile", "subspace", "als", "power", "frank-wolfe"])
def test_recommenders(method, neighboring):
    """Neighbors differ in a user's whole row; what is published may not change beyond the mechanisms' answers."""
    rng = np.random.default_rng(0)
    ratings = np.where(rng.random((40, 8)) < 0.5, rng.integers(1, 6, (40, 8)), 0).astype(float)
    if method == "frank-wolfe":  # it subtracts a user's own mean, so that ratings must differ to move it
        ratings[0] = 4 * [1.0, 5.0]
    other = ratings.copy()
    other[0] = 0.0 if neighboring == "zero-out" else np.where(ratings[0] > 1, 0.0, 5.0)

    def program(user_items):
        model = discreet.PrivateMatrixCompletion(method, 1.0, 1e-2, neighboring=neighboring, rank=2)
        return model.fit(sp.csr_matrix(user_items))

    found = replay(program, ratings, other)
    assert found.passed, str(found)
    assert 0.5 < found.worst_ratio <= 1.0


rows = st.lists(st.floats(-1e6, 1e6) | st.floats(-2, 2) | st.just(np.nan), min_size=2, max_size=2)
records = st.tuples(rows, st.sampled_from([0, 1, 7]))


@pytest.mark.parametrize("neighboring", RELATIONS)
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    data=st.lists(records, min_size=2, max_size=6),
    other=records,
    index=st.integers(0, 1),
    kind=st.sampled_from(KINDS),
)
def test_no_neighbors_found_by_search_break_a_declaration(neighboring, data, other, index, kind):
    X, y = np.array([row for row, _ in data]), np.array([label for _, label in data])
    pair = neighbors_of(X, y, index, neighboring, *other)
    found = replay(fitting(make(kind, neighboring)), pair.first, pair.second, skip={"repeatable"})
    target(found.worst_ratio)
    assert found.passed, str(found)
    assert found.worst_ratio <= 1.0 + 1e-9


def test_bad_rows_null_hides_what_bad_rows_error_tells():
    X = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.1]])
    y = np.array([0, 1, 1])
    for row, label in (([np.nan, 0.0], 1), ([np.inf, 0.0], 1), ([0.0, 0.0], 5)):
        pair = neighbors_of(X, y, 0, "replace-one", row, label)
        assert replay(fitting(make(PrivateLinearSVC)), pair.first, pair.second).passed
        strict = make(PrivateLinearSVC, bad_rows="error")
        assert replay(fitting(strict), pair.first, pair.second).failed_checks >= {"errors"}


def test_a_plan_can_be_replayed_by_itself():
    seen = trace(fitting(make(PrivateLogisticRegression)), worst_pair("replace-one", n_rest=2).first)
    other = trace(fitting(make(PrivateLogisticRegression)), worst_pair("replace-one", n_rest=2).second)
    run, run_other = seen.runs[0], other.runs[0]
    assert replay(running(run.plan), run.records, run_other.records).passed


# -- adaptive runs are compared given equal answers -----------------------------------------------------------------


def adaptive_sum(data):
    """Two releases of which the second depends on the first answer: the question moves with the answer."""
    entropy, mechanism = fresh_entropy(), GaussianMechanism(Sensitivity(1.0), 2.0, size=1)
    first = mechanism.release([np.clip(data, -0.5, 0.5).sum()], entropy)
    return mechanism.release([np.clip(data * np.exp(first[0]), -0.5, 0.5).sum() + 100 * first[0]], entropy)


def test_answers_are_replayed_so_that_later_questions_are_comparable():
    data, other = np.array([0.5, 0.1, 0.2]), np.array([-0.5, 0.1, 0.2])
    found = replay(adaptive_sum, data, other)
    assert found.passed, str(found)
    assert found.worst_ratio == pytest.approx(1.0)
    drifting = [trace(adaptive_sum, part).calls[1].value[0] for part in (data, other)]
    assert abs(drifting[0] - drifting[1]) > 10  # with equal noise alone, the second distance would look huge


def test_a_laplace_mechanism_is_measured_in_its_own_norm():
    def program(data):
        return LaplaceMechanism(Sensitivity(2.0, norm=1), 1.0, size=2).release(data, fresh_entropy())

    found = replay(program, np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert found.passed
    assert found.distances[0].observed == 2.0
    assert replay(program, np.array([1.0, 0.0]), np.array([0.0, 1.1])).failed_checks == {"distance"}


class LoudestScore:
    """A selection that declares how unevenly its scores may move; stands for every exponential mechanism."""

    def select(self, scores, entropy):
        return observed(self, entropy, int(np.argmax(scores)), scale=1.0, value=scores, score_range=1.0)


def test_a_selection_is_measured_by_the_spread_of_its_scores():
    def program(scores):
        return LoudestScore().select(np.array(scores), fresh_entropy())

    assert replay(program, [1.0, 2.0, 3.0], [5.0, 6.0, 8.0]).worst_ratio == 1.0  # all move, unevenly by one
    assert replay(program, [1.0, 2.0, 3.0], [1.0, 2.0, 9.0]).failed_checks == {"distance"}


# -- known-bad twins: caught, and by what ---------------------------------------------------------------------------

PAIR = worst_pair("replace-one", n_rest=3)
TWINS = {
    "half noise": (make(PrivateLogisticRegression, solver=twins.solver_with(twins.HalfNoise)), "noise"),
    "weak ridge": (make(PrivateLogisticRegression, solver=twins.solver_with(twins.WeakRidge)), "distance"),
    "one draw for all classes": (
        make(
            PrivateLinearSVC,
            n_classes=3,
            multi_class="ovr",
            solver=twins.solver_with(twins.SharedAcrossClasses),
        ),
        "noise",
    ),
    "one seed for all classes": (
        make(
            PrivateLinearSVC, n_classes=3, multi_class="ovr", solver=twins.solver_with(twins.ReseededPerClass)
        ),
        "reuse",
    ),
    "no output stage": (make(PrivateLinearSVC, solver=twins.solver_with(twins.NoOutputStage)), "state"),
    "minimizer not verified": (
        make(PrivateLogisticRegression, solver=twins.solver_with(twins.StopsEarly)),
        "distance",
    ),
    "randomness by the data": (
        make(PrivateLinearSVC, solver=twins.solver_with(twins.PrivateTiming)),
        "words",
    ),
    "unwatched randomness": (
        make(PrivateLinearSVC, solver=twins.solver_with(twins.OtherRandomness)),
        "repeatable",
    ),
    "printed objective perturbation": (make(PrivateLogisticRegression, solver=twins.PrintedRule()), "claim"),
    "one-sided clipping": (make(twins.with_bounds(twins.OneSided, False)), "distance"),
    "publishes its score": (make(twins.PublishesScore), "state"),
    "keeps a row": (make(twins.KeepsRows), "state"),
}


@pytest.mark.parametrize("name", TWINS)
def test_replay_catches(name):
    twin, check = TWINS[name]
    found = replay(fitting(twin), PAIR.first, PAIR.second)
    assert check in found.failed_checks, str(found)
    assert found.failed_checks <= set(CHECKS)


def test_replay_catches_an_intercept_outside_the_clip():
    kind = twins.with_bounds(twins.UnclippedIntercept, True)
    flipped, blanked = worst_pair("replace-one", n_rest=3, flip=True), worst_pair("zero-out", n_rest=3)
    for pair in (flipped, blanked):
        found = replay(fitting(make(kind, pair.neighboring)), pair.first, pair.second)
        assert "distance" in found.failed_checks, str(found)
        assert found.worst_ratio == pytest.approx(np.sqrt(2), rel=1e-3)
        assert replay(
            fitting(make(PrivateLogisticRegression, pair.neighboring)), pair.first, pair.second
        ).passed


def test_replay_catches_columns_scaled_by_the_data():
    X, y = [[0.1, 0.0], [0.9, 0.1], [0.8, 0.1], [0.7, -0.1], [0.9, 0.0]], [1, 0, 0, 0, 0]
    pair = neighbors_of(X, y, 0, "replace-one", [1e3, 0.0], 1)
    assert "distance" in replay(fitting(make(twins.ScaledByTheData)), pair.first, pair.second).failed_checks


def test_replay_catches_a_data_dependent_retry():
    X, y = np.array([[0.9, 0.1], [0.2, 0.3]]), np.array([0, 1])
    twin = make(PrivateLinearSVC, solver=twins.solver_with(twins.RetryUntilGood))
    failed = set()
    for seed in range(6):  # whether a retry happens is up to the noise
        pair = neighbors_of(X, y, 0, "replace-one", [-0.9, 0.1], 1)
        failed |= replay(fitting(twin), pair.first, pair.second, seed=seed).failed_checks
    assert "calls" in failed


def test_replay_catches_a_warning_about_the_data():
    pair = neighbors_of([[0.1, 0.1], [0.2, 0.3]], [0, 1], 0, "replace-one", [5.0, 5.0], 1)
    assert replay(fitting(make(twins.WarnsAboutClipping)), pair.first, pair.second).failed_checks == {
        "warnings"
    }


def test_replay_catches_a_label_set_read_from_the_data():
    X, y = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.1], [0.1, 0.1]]), np.array([2, 0, 1, 1])
    pair = neighbors_of(X, y, 0, "replace-one", [0.1, 0.2], 1)
    model = make(PrivateLogisticRegression, classes=None, bad_rows="error")
    assert replay(fitting(model), pair.first, pair.second).failed_checks >= {"plan", "calls", "state"}


def test_counting_repeats_catches_a_one_byte_seed(monkeypatch):
    mechanism = GaussianMechanism(Sensitivity(1.0), 1.0, size=2)
    honest = {mechanism.release([0.0, 0.0], fresh_entropy()).tobytes() for _ in range(400)}
    poor = {mechanism.release([0.0, 0.0], twins.OneByteSeed()).tobytes() for _ in range(400)}
    assert len(honest) == 400
    assert len(poor) <= 256


# -- the recorder ----------------------------------------------------------------------------------------------------


def test_nothing_is_recorded_under_secret_noise():
    recorder = Recorder()
    with recorded_by(recorder), pytest.raises(RuntimeError, match="insecure_noise"):
        make(PrivateLinearSVC).fit(*PAIR.first)
    assert recorder.calls == []


def test_recording_changes_no_released_bit():
    with insecure_noise(3):
        plain = make(PrivateLogisticRegression).fit(*PAIR.first)
    with insecure_noise(3), recorded_by(Recorder()):
        recorded = make(PrivateLogisticRegression).fit(*PAIR.first)
    assert frozen(plain) == frozen(recorded)


def test_a_recorder_ends_with_its_block_and_survives_errors():
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), recorded_by(recorder):
        raise ZeroDivisionError
    make(PrivateLinearSVC).fit(*PAIR.first)
    assert recorder.calls == []


def test_half_the_noise_is_half_the_noise():
    mechanism = GaussianMechanism(Sensitivity(1.0), 1.0, size=3)
    with insecure_noise(0):
        full = mechanism.release([1.0, 2.0, 3.0], fresh_entropy())
    with insecure_noise(0), recorded_by(Weakener(0.5)):
        half = mechanism.release([1.0, 2.0, 3.0], fresh_entropy())
    assert np.allclose(half - [1, 2, 3], (full - [1, 2, 3]) / 2)


def test_frozen_values_show_every_bit():
    a, b = {"x": [1.0, np.array([0.1])]}, {"x": [1.0, np.array([np.nextafter(0.1, 1)])]}
    assert frozen(a) == frozen({"x": [1.0, np.array([0.1])]})
    assert difference(frozen(a), frozen(b)) is not None
    assert frozen(-0.0) != frozen(0.0)


def test_a_program_that_never_runs_does_not_pass():
    def broken(data):
        raise ValueError("no")

    assert replay(broken, 1, 2).failed_checks == {"errors"}


def test_unknown_checks_cannot_be_skipped():
    with pytest.raises(ValueError, match="unknown checks"):
        replay(adaptive_sum, np.zeros(2), np.zeros(2), skip={"everything"})


def test_of_an_estimator_everything_that_a_fit_sets_is_compared():
    for name in discreet.__all__:
        kind = getattr(discreet, name)
        if not (isinstance(kind, type) and hasattr(kind, "get_params")):
            continue
        one, two = object.__new__(kind), object.__new__(kind)
        for model, value in ((one, 1.0), (two, 2.0)):
            model.get_params = lambda deep=True: {}
            model.number_ = value
        assert difference(frozen(one), frozen(two)) == ".number_"
