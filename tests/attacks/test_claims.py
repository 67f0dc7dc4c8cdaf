"""Attacks that made a claimed epsilon of version 0.1.0 false, or spoke of the data beside the release.

Every test here failed on version 0.1.0 and passes now; `docs/attacks.md` lists them. They use names that both versions
have (`moved` finds the few that have changed place), so that these files run on either:
``PYTHONPATH=<checkout of 0.1.0>/src pytest --noconftest -c /dev/null tests/attacks``.
"""

import dataclasses
import importlib
import inspect
import random
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier

import discreet

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so few records are mostly noise


def moved(*modules):
    """The first of several modules that this version has."""
    for name in modules:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(modules)


sets = moved("discreet.sets", "discreet.geometries")


# -- searches that never end ----------------------------------------------------------------------------------------


class Endless(AssertionError):
    """A search was at the same two points before, or has made more passes than it may."""


class passes:
    """Counts the passes of a block over the data; two points in a row that were seen before come for ever."""

    def __init__(self, most, cycles=True):
        self.most, self.cycles, self.count, self.last, self.seen = most, cycles, 0, b"", set()

    def __enter__(self):
        sys.setprofile(self._heard)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _heard(self, frame, event, _):
        if event != "call" or frame.f_code.co_name != "value_and_gradient" or "theta" not in frame.f_locals:
            return
        if type(frame.f_locals["self"]).__name__ != "ArrayRecords":
            return
        self.count += 1
        state = self.last, np.asarray(frame.f_locals["theta"]).tobytes()
        if self.count > self.most or (self.cycles and state in self.seen):
            sys.setprofile(None)
            raise Endless(f"pass {self.count}")
        self.seen.add(state)
        self.last = state[1]


def concentrated(first, n):
    """Equal rows, or one exchanged: at the corner of a narrow hinge the last digit of theta moves the gradient."""
    X, y = np.tile([1.0, 0.0], (n, 1)), np.ones(n, int)
    if first is not None:
        X[0, 0], y[0] = first, 0
    return X, y


def narrow(epsilon, solver, width=1e-3, **parameters):
    return discreet.PrivateLinearSVC(
        epsilon,
        1e-6,
        huber_width=width,
        l2=0.01,
        fit_intercept=False,
        solver=solver,
        classes=[0, 1],
        **parameters,
    )


@pytest.mark.parametrize("inside", ["L2Ball", "L1Ball", "Box"])
def test_output_perturbation_over_a_set_releases_for_every_data_set(inside):
    """It draws no noise before it searches: what never ends on one data set, and ends on its neighbor, has no delta."""
    kind = getattr(sets, inside)
    model = narrow(
        1.0, "output", constraint=kind((-20.0,) * 2, (20.0,) * 2) if inside == "Box" else kind(20.0, 2)
    )
    with passes(most=3000):
        model.fit(*concentrated(None, 2000))


def test_objective_perturbation_over_a_set_releases_for_every_noise():
    model = narrow(100.0, "objective", constraint=sets.L2Ball(20.0, 2))
    with discreet.insecure_noise(0), passes(most=3000):
        model.fit(*concentrated(None, 1000))


def test_neighbors_without_a_set_take_about_as_many_passes():
    """74 for one data set, thousands for its neighbor."""
    model = narrow(1.0, "output", width=1e-6).set_params(l2=1e-5)
    for first in (0.0, 0.1, 0.4, None):
        with passes(most=500, cycles=False):
            model.fit(*concentrated(first, 1000))


# -- what speaks beside the release ---------------------------------------------------------------------------------


def models():
    parameters = {"delta": 1e-2, "bad_rows": "null"}
    two = {"classes": [0, 1], **parameters}
    return {
        "output": discreet.PrivateLogisticRegression(1.0, solver="output", **two),
        "newton": discreet.PrivateLogisticRegression(1.0, solver="newton", **two),
        "discriminant": discreet.PrivateLogisticRegression(1.0, solver="discriminant", **two),
        "SVC": discreet.PrivateLinearSVC(1.0, **two),
        "ridge": discreet.PrivateRidge(1.0, target_bounds=(0, 1), **parameters),
        "quantile": discreet.PrivateQuantileRegressor(1.0, target_bounds=(0, 1), **parameters),
    }


@pytest.mark.parametrize("action", ["raise", "warn"])
@pytest.mark.parametrize("name", list(models()))
def test_a_tiny_entry_raises_and_says_nothing_after_the_charge(name, action):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    heard = []
    for row in (X[0], [1e-200, 1e-200], [5e-324, 1e-310]):
        X[0] = row
        with warnings.catch_warnings(record=True) as told, np.errstate(all=action):
            warnings.simplefilter("always")
            models()[name].fit(X, y)
        heard.append([str(one.message) for one in told])
    assert heard == heard[:1] * 3


# -- one cell that changes the rows of others -----------------------------------------------------------------------


@pytest.mark.parametrize("held", [pd.Series, np.asarray], ids=["pandas", "NumPy"])
def test_a_missing_cell_among_truths_leaves_other_rows_alone(held):
    """pandas makes objects of such a column; a fit with epsilon 1 was told from its neighbor with epsilon 3.7."""
    truths = np.random.default_rng(0).random(500) < 0.5
    gap = truths.astype(object)
    gap[3] = None
    schema = discreet.Schema(
        {"c": discreet.Numeric(0, 1), "d": discreet.Binned((0.5,))}, discreet.Target("t", bounds=(0, 1))
    )
    columns = held(truths), held(gap)
    rows = [schema.transform({"c": cells, "d": cells}, bad_rows="null") for cells in columns]
    values = [schema.target_values({"t": cells}, bad_rows="null") for cells in columns]
    assert np.array_equal(*(np.delete(part, 3, axis=0) for part in rows))
    assert np.array_equal(*(np.delete(part, 3) for part in values))


def test_a_missing_cell_among_truths_leaves_private_domains_alone():
    released = []
    for gap in (False, True):
        cells = (np.arange(500) % 2 == 0).astype(object if gap else bool)
        if gap:
            cells[3] = None
        with discreet.insecure_noise(3):
            told = discreet.private_domains(
                {"c": cells}, {"c": [0.0, 0.5, 1.0]}, epsilon=9.0, bad_rows="null"
            )
        released.append(told[0])
    assert released[0] == released[1]


def test_types_of_columns_are_stated_to_be_public():
    """A container may itself rewrite a column beside one odd cell: words of a text column, numbers beside a gap."""
    rows = np.random.default_rng(0).uniform(-1, 1, size=(300, 2)) / 2
    model = discreet.PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]).fit(rows, rows[:, 0] > 0)
    assert any(
        "type" in line and "column" in line and "public" in line for line in model.privacy_.assumptions
    )


def ids(missing):
    """Ids beyond what float64 tells apart, as pandas holds them: float64 as soon as one is missing."""
    people = [2**60 + place // 2 for place in range(400)]
    return pd.Series([None, *people[1:]] if missing else people)


def people_of(kind, missing):
    """How many people somebody who declares float ids is told to have, or None where they are refused."""
    table = {"who": ids(missing), "a": np.arange(400) % 2 > 0}
    try:
        if kind == "schema":
            return len(set(discreet.Schema({"a": discreet.Boolean()}, group="who").groups(table)))
        if kind == "recommender":
            ratings = pd.DataFrame({"user": table["who"], "item": np.arange(400) % 5, "rating": 1.0})[1:]
            model = discreet.PrivateMatrixCompletion(
                "bias", 9.0, 1e-6, items=list(range(5)), rating_bounds=(0, 1), duplicates="mean"
            )
            return str(model.fit(ratings).privacy_)
        model = discreet.PrivateLogisticRegression(
            1.0, 1e-6, classes=[0, 1], max_rows_per_group=2, bad_rows="null"
        ).fit(np.eye(2)[np.arange(400) % 2], table["a"], groups=table["who"])
        return [line for line in model.privacy_.assumptions if "number of groups" in line]
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("kind", ["estimator", "schema", "recommender"])
def test_one_missing_id_regroups_nobody(kind):
    """Columns of floats are no ids: refused by type, before anything is charged."""
    assert people_of(kind, missing=True) is None


@pytest.mark.parametrize("bounds", ["LeveledBounds", "CenteredBounds"])
def test_the_scale_of_a_row_depends_on_that_row_alone(bounds):
    """No estimator of 0.1.0 passed rows in Fortran order; the proof did not say that it must not."""
    place = "leveled" if bounds == "LeveledBounds" else "centered"
    kind = getattr(moved("discreet.solvers.gradients.row_centering", f"discreet.solvers.{place}"), bounds)
    rng = np.random.default_rng(8)
    bound = kind(1.0) if bounds == "LeveledBounds" else kind(1.0, center=rng.normal(size=37))
    rows = 4.0 * rng.normal(size=(400, 37))
    expected = [bound.row_scales(rows[place : place + 1])[0] for place in range(400)]
    assert np.array_equal(bound.row_scales(np.asfortranarray(rows)), expected)


def test_a_column_may_be_called_records():
    """A frame with such a column was taken for a file in parts."""
    frame = pd.DataFrame(
        np.random.default_rng(0).uniform(-1, 1, size=(300, 2)) / 2, columns=["records", "other"]
    )
    model = discreet.PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]).fit(frame, frame["other"] > 0)
    assert model.feature_names_in_.tolist() == ["records", "other"]


# -- teachers and the generators of the process ---------------------------------------------------------------------

ANSWERS = []


class Drawn(ClassifierMixin, BaseEstimator):
    """The nearer mean along a direction drawn from the global generators, as often as the labels say."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        np.random.standard_normal(int(y.sum()))
        self.direction_ = np.random.standard_normal(X.shape[1]) * random.random()
        self.means_ = [float((X[y == label] @ self.direction_).mean()) for label in (0, 1)]
        return self

    def predict(self, X):
        low, high = self.means_
        noisy = X @ self.direction_ + np.random.uniform(-0.1, 0.1, size=len(X))
        answer = ((noisy > (low + high) / 2) == (high > low)).astype(int)
        ANSWERS.append(answer)
        return answer


def test_one_label_changes_one_teacher():
    """After ``np.random.seed`` what one teacher had drawn decided what the next one drew: 14 votes moved, not one."""
    rng = np.random.default_rng(1)
    X, queries = rng.normal(size=(600, 3)), rng.normal(size=(40, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0.8).astype(int)
    answers = []
    for changed in (y, np.append(1 - y[0], y[1:])):
        ANSWERS.clear()
        random.seed(0)
        np.random.seed(0)
        model = discreet.PrivateTransferClassifier(
            Drawn(),
            DummyClassifier(),
            n_teachers=20,
            epsilon=5.0,
            delta=1e-2,
            aggregator="plurality",
            classes=[0, 1],
            random_state=0,
        )
        with discreet.insecure_noise(1):  # the same chunks
            model.fit(X, changed, queries)
        answers.append([answer for answer in ANSWERS if len(answer) == len(queries)][-20:])
    assert len(answers[0]) == len(answers[1]) == 20
    assert sum(not np.array_equal(one, two) for one, two in zip(*answers, strict=True)) <= 1


def test_one_row_changes_one_chunk_of_a_function():
    subsample = moved("discreet.transfer.subsample").subsample_and_aggregate
    seeded = {"random_state": 0} if "random_state" in inspect.signature(subsample).parameters else {}
    X = np.random.default_rng(2).uniform(size=(400, 2))
    answers = []
    for first in (X[0], [9.0, 9.0]):
        X[0], told = first, []

        def drawing(rows, told=told):
            """Draws once more where a row is far out."""
            np.random.standard_normal(1 + int(rows.max() > 1))
            told.append(np.random.random())
            return int(told[-1] > 0.5)

        np.random.seed(0)
        with discreet.insecure_noise(1):
            subsample(drawing, X, [0, 1], n_chunks=10, epsilon=5.0, delta=1e-2, **seeded)
        answers.append(told)
    assert len(set(answers[0]) - set(answers[1])) <= 1


# -- what is believed ------------------------------------------------------------------------------------------------


class Understated(sets.L2Ball):
    """A set of the user's that says it is smaller than it is."""

    def radius(self, norm=2.0):
        return super().radius(norm) / 100


def test_a_set_of_the_users_is_named_in_the_statement():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(300, 2)) / 2
    model = discreet.PrivateLogisticRegression(
        1.0, 1e-6, classes=[0, 1], solver="noisy-gd", constraint=Understated(2.0, 3)
    ).fit(rows, rows[:, 0] > 0)
    assert "Understated" in str(model.privacy_)


class Cheap:
    """A solver of the user's, which plans as another one does and charges a tenth of it."""

    name, multiclass = "cheap", "one-vs-rest"

    def plan(self, problem, guarantee):
        solver = importlib.import_module("discreet.solvers.base").resolve("noisy-gd")
        return solver.plan(problem, dataclasses.replace(guarantee, epsilon=10 * guarantee.epsilon))


def test_a_solver_of_the_users_is_named_in_the_statement():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(300, 2)) / 2
    model = discreet.PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], solver=Cheap())
    assert "Cheap" in str(model.fit(rows, rows[:, 0] > 0).privacy_)


def test_sources_on_a_cluster_are_stated_to_be_repeatable():
    array = pytest.importorskip("dask.array")
    rows = np.random.default_rng(0).uniform(-1, 1, size=(300, 2)) / 2
    model = discreet.PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1])
    model.fit(array.from_array(rows, chunks=(100, 2)), (rows[:, 0] > 0).astype(int))
    assert "same rows" in str(model.privacy_) or "repeatable" in str(model.privacy_)


# -- intervals that flatter -----------------------------------------------------------------------------------------


class Known:
    """A fixed classifier: the probability of class 1 is the first column."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X):
        return (X[:, 0] >= 0.5).astype(int)


def scores(rng, positives, negatives):
    """Scores of the two classes, low ones as for rare positives, and which is which."""
    found = np.append(rng.beta(1, 12, size=positives), rng.beta(1, 40, size=negatives))
    return found[:, None], np.append(np.ones(positives, int), np.zeros(negatives, int))


def true_auc(bins):
    X, y = scores(np.random.default_rng(10**6), 10**6, 10**6)
    cells = np.minimum((bins * X[:, 0]).astype(int), bins - 1)
    up, down = (np.bincount(cells[y == label], minlength=bins) / 10**6 for label in (1, 0))
    return float(up @ (np.cumsum(down) - down / 2))


def test_intervals_of_auc_cover_where_positives_are_near_their_noise():
    """Low scores in many bins: intervals were given where noise was flattering. Other laws of scores hid it."""
    truth, hits, n = true_auc(100), [], 6000
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, y = scores(rng, positives := int(rng.binomial(n, 0.029)), n - positives)
        with discreet.insecure_noise(seed):
            found = discreet.evaluate(Known(), X, y, epsilon=1.0, delta=1e-6, bins=100)["AUC"]
        if np.isfinite(found.value):
            hits.append(found.lower <= truth <= found.upper)
    assert np.mean(hits) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(hits))


def test_intervals_of_calibration_cover_where_bins_are_near_their_noise():
    """Few records in each of 50 bins: those that noise had made large enough were shown."""
    rate, hits = 0.97, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = (rng.integers(50, size=(300, 1)) + 0.5) / 50
        y = (rng.random(300) < rate).astype(int)
        with discreet.insecure_noise(seed):
            found = discreet.evaluate(Known(), X, y, epsilon=1.0, delta=1e-6, bins=50).calibration
        hits += [one.lower <= rate <= one.upper for _, _, one in found if np.isfinite(one.value)]
    assert np.mean(hits) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(hits))


def test_plain_logistic_fits_have_finite_intervals():
    """On 0.1.0 two of these eight had them."""
    finite = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-0.5, 0.5, size=(4000, 3))
        y = (rng.random(4000) < 1 / (1 + np.exp(-X @ [1.0, 0.5, -1.0]))).astype(int)
        with discreet.insecure_noise(seed):
            model = discreet.PrivateLogisticRegression(1.0, classes=[0, 1], feature_bound=1.4).fit(X, y)
            found = discreet.coefficient_intervals(model, X, y, epsilon=1.0)
        finite.append(bool(np.isfinite(found.upper - found.lower).all()))
    assert sum(finite) >= 6
