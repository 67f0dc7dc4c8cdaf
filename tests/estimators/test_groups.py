"""User-level privacy: rows are bounded per group, and the promise covers all rows of a group at once."""

import dataclasses
import inspect
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import discreet
from discreet import (
    Ledger,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    PrivateSparseLogisticRegression,
)
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.description.quantiles import private_norm_bound
from discreet.estimators import groups, linear
from discreet.estimators.groups import bounded_rows
from discreet.estimators.linear import PrivateLinearModel
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.privacy.accounting import accountants, calibration
from discreet.privacy.accounting.calibration import (
    gaussian_record_guarantee,
    group_delta,
    group_event,
    record_guarantee,
)
from discreet.privacy.accounting.gaussian import gaussian_delta
from discreet.privacy.events import (
    Approximate,
    BoundedRange,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Grouped,
    Laplace,
    ObjectivePerturbation,
    Pure,
    Repeated,
    Subsampled,
    ZeroConcentrated,
)
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.solvers import base
from discreet.transfer.subsample import subsample_and_aggregate

PUBLIC_SIZE = ["replace-one", "zero-out"]


def chosen(ids, k, *, padded=True, strict=True):
    with insecure_noise(3):
        slots = bounded_rows(ids, k, len(ids), strict=strict, padded=padded)
    return np.where(slots.empty, -1, slots.rows)


# --- contribution bounding ---


def test_every_group_has_its_own_places_in_order_of_appearance():
    assert chosen(["b", "a", "b", "c"], 2).tolist() == [0, 2, 1, -1, 3, -1]
    assert chosen(["b", "a", "b", "c"], 2, padded=False).tolist() == [0, 2, 1, 3]


def test_at_most_k_rows_of_a_group_and_all_of_small_groups():
    ids = np.repeat(np.arange(50), np.arange(50) % 7 + 1)
    places = chosen(ids, 3).reshape(50, 3)
    for group, rows in enumerate(places):
        kept = rows[rows >= 0]
        assert len(set(kept)) == len(kept) == min(3, np.sum(ids == group))
        assert np.all(ids[kept] == group)


def test_a_group_is_bounded_whatever_other_groups_hold():
    """The choice within group "x" stays when all other groups change in number and size."""
    alone = chosen(["x"] * 10, 3)
    crowd = ["u"] * 9 + ["x"] * 10 + ["v", "w", "v"] * 7
    among = chosen(crowd, 3)[3:6] - 9
    assert np.array_equal(alone, among)


def test_every_row_of_a_large_group_is_equally_likely():
    counts = np.zeros(6)
    for _ in range(1500):
        slots = bounded_rows(["a"] * 6, 2, 6, strict=True, padded=True)
        counts[slots.rows] += 1
    assert stats.chisquare(counts).pvalue > 1e-7


def test_missing_ids_are_refused_or_left_out():
    ids = np.array(["a", None, "b", float("nan")], dtype=object)
    with pytest.raises(ValueError, match="has no id"):
        chosen(ids, 1)
    assert chosen(ids, 1, strict=False).tolist() == [0, 2]
    nullable = pd.array([7, None, 7], dtype="Int64")
    assert chosen(nullable, 2, strict=False).tolist() == [0, 2]


def test_no_character_of_an_id_raises_anything():
    """Half a surrogate pair, which no encoding has, would otherwise tell that its owner has more than k rows."""
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(40, 2)), np.array([f"u{row // 2}" for row in range(40)], dtype=object)
    ids[ids == "u5"] = "u5\udcff"
    model = PrivateLogisticRegression(classes=[0, 1], max_rows_per_group=1, delta=1e-6, bad_rows="null")
    model.fit(X, X[:, 0] > 0, groups=ids)
    assert any("number of groups, 20," in line for line in model.privacy_.assumptions)


def test_ids_are_told_apart_by_every_character_but_blanks_around_them():
    ids = ["a", "a\0", " a", "a ", "b"]
    for given in (ids, np.array(ids, dtype=object), pd.Series(ids)):
        slots = bounded_rows(given, 3, len(ids), strict=True, padded=True)
        places = np.where(slots.empty, -1, slots.rows).reshape(-1, 3)
        assert places.tolist() == [[0, 2, 3], [1, -1, -1], [4, -1, -1]]
    assert chosen(np.array(["a", " a", "b"]), 2).reshape(-1, 2).tolist() == [[0, 1], [2, -1]]


def test_both_or_neither_of_groups_and_bound():
    X, y = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(ValueError, match="pass groups="):
        PrivateLogisticRegression(classes=[0, 1], max_rows_per_group=2).fit(X, y)
    with pytest.raises(ValueError, match="max_rows_per_group"):
        PrivateLogisticRegression(classes=[0, 1]).fit(X, y, groups=[1, 1, 2, 2])
    with pytest.raises(ValueError, match="one id per row"):
        PrivateLogisticRegression(classes=[0, 1], max_rows_per_group=2).fit(X, y, groups=[1, 2])
    with pytest.raises(ValueError, match="at least 1"):
        PrivateLogisticRegression(classes=[0, 1], max_rows_per_group=0).fit(X, y, groups=y)


# --- group privacy of events ---


@pytest.mark.parametrize(("size", "epsilon"), [(1, 0.4), (3, 0.4), (7, 1.5)])
@pytest.mark.lemma("groups.md#theorem-1")
def test_the_general_conversion_is_the_geometric_sum(size, epsilon):
    direct = sum(math.exp(i * epsilon) for i in range(size)) * 1e-9
    assert group_delta(epsilon, 1e-9, size) == pytest.approx(direct, rel=1e-12)
    whole = Guarantee(size * epsilon, 1e-9)
    record = record_guarantee(whole, size)
    assert size * record.epsilon <= whole.epsilon
    assert group_delta(record.epsilon, record.delta, size) <= whole.delta


def test_events_scale_by_their_closed_forms():
    assert group_event(Gaussian(6.0), 3) == Gaussian(2.0)
    assert group_event(Laplace(6.0), 3) == Laplace(2.0)
    assert group_event(Pure(0.5), 3) == Pure(1.5)
    assert group_event(BoundedRange(0.5), 3) == BoundedRange(1.5)
    assert group_event(ZeroConcentrated(0.5), 3) == ZeroConcentrated(4.5)
    tree = Composed((Repeated(Discretized(Gaussian(6.0), 5), 2), Pure(0.25)))
    assert group_event(tree, 2) == Composed((Repeated(Discretized(Gaussian(3.0), 5), 2), Pure(0.5)))
    scaled = group_event(Approximate(0.5, 1e-6), 2)
    assert scaled == Approximate(1.0, group_delta(0.5, 1e-6, 2))


def test_nothing_is_claimed_where_nothing_is_proved():
    objective = ObjectivePerturbation("logistic", 5.0, 1.0, 0.25, 0.01)
    assert group_event(Subsampled(Gaussian(2.0), 0.1), 2) is None
    assert group_event(Composed((Gaussian(2.0), Repeated(Subsampled(Pure(1.0), 0.1), 3))), 2) is None
    assert group_event(objective, 2) == Grouped(objective, 2)


@pytest.mark.parametrize("relation", list(Neighboring))
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_a_grouped_profile_is_the_conversion_at_every_epsilon(relation, epsilon):
    objective = ObjectivePerturbation("logistic", 5.0, 1.0, 0.25, 0.01)
    one = accountants.delta(objective, epsilon / 3, relation)
    whole = accountants.delta(Grouped(objective, 3), epsilon, relation)
    assert whole == pytest.approx(min(1.0, group_delta(epsilon / 3, one, 3)), rel=1e-9)
    exact = accountants.delta(Gaussian(5.0 / 3), epsilon, relation)
    assert accountants.delta(Grouped(Gaussian(5.0), 3), epsilon, relation) >= exact
    assert Event.from_dict(Grouped(objective, 3).to_dict()) == Grouped(objective, 3)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_exact_densities_of_a_perturbed_objective_stay_below_the_grouped_profile(rows):
    """One coefficient: the minimizer's density is a normal density times a derivative, integrated directly.

    All of a person's rows say +1 in one data set and -1 in the other. The profile of a single record is broken by
    them, so the factor matters.
    """
    sigma, l2 = 2.0, 2.0
    theta = np.linspace(-12, 12, 200_001)

    def density(sign):
        slope = -sign * rows / (1 + np.exp(sign * theta)) + l2 * theta
        curvature = rows * np.exp(-np.abs(theta)) / (1 + np.exp(-np.abs(theta))) ** 2 + l2
        return stats.norm.pdf(slope, scale=sigma) * curvature

    event = ObjectivePerturbation("logistic", sigma, 1 / l2, 0.25, 0.0)
    first, second = density(1.0), density(-1.0)
    assert np.trapezoid(first, theta) == pytest.approx(1.0, abs=1e-6)
    for epsilon in (0.25, 1.0, 2.0):
        exact = np.trapezoid(np.maximum(first - np.exp(epsilon) * second, 0.0), theta)
        assert exact <= accountants.delta(Grouped(event, rows), epsilon, Neighboring.REPLACE_ONE)
        if rows == 3 and epsilon == 1.0:
            assert exact > accountants.delta(event, epsilon, Neighboring.REPLACE_ONE)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.lemma("groups.md#theorem-2")
def test_the_gaussian_rule_is_exact_and_below_the_conversion(size):
    whole = Guarantee(1.0, 1e-8)
    record = gaussian_record_guarantee(whole, size)
    assert record.delta > record_guarantee(whole, size).delta
    from discreet.privacy.accounting.gaussian import gaussian_mu

    mu = size * gaussian_mu(record.epsilon, record.delta)
    assert 0.998 * whole.delta < gaussian_delta(whole.epsilon, mu) < whole.delta


# --- plans ---


@pytest.mark.parametrize("solver", ["noisy-gd", "newton", "output", "psgd"])
def test_gaussian_solvers_need_k_times_the_noise_and_no_more(solver):
    def multiplier(k):
        model = PrivateLogisticRegression(1.0, 1e-7, classes=[0, 1], solver=solver, max_rows_per_group=k)
        event = model.plan(30_000, 5).event
        return accountants.epsilon(event, 1e-7, Neighboring.REPLACE_ONE)

    for k in (1, 2, 4):
        assert 0.99 < multiplier(k) <= 1.0 + 1e-9


@pytest.mark.parametrize("solver", sorted(set(base.names()) - {"noisy-sgd"}))
@pytest.mark.parametrize("relation", list(Neighboring))
def test_every_plan_keeps_the_promise_for_groups(solver, relation):
    """Directly priced where the event scales; by the conversion of the record's promise elsewhere."""
    lasso = PrivateLasso(1.0, 1e-6, target_bounds=(-1, 1), solver=solver)
    ridge = PrivateRidge(1.0, 1e-6, target_bounds=(-1, 1), solver=solver)
    logistic = PrivateLogisticRegression(1.0, 1e-6, solver=solver)
    planned = 0
    for model in (lasso, ridge, logistic):
        model.set_params(neighboring=relation.value)
        try:
            model.plan(3000, 4)
        except ValueError:
            continue  # refused for single records as well
        plan = model.set_params(max_rows_per_group=3).plan(3000, 4)
        planned += 1
        record = plan.record_guarantee
        assert plan.guarantee.unit == "user"
        assert record.unit == "record"
        assert accountants.delta(plan.event, 1.0, relation) <= 1e-6
        assert accountants.delta(plan.record_event, record.epsilon, relation) <= record.delta
        if isinstance(plan.event, Approximate):
            assert 3 * record.epsilon <= 1.0
            assert group_delta(record.epsilon, record.delta, 3) <= 1e-6
    if solver in ("auto", "objective", "noisy-gd", "output", "newton", "statistics", "frank-wolfe"):
        assert planned


def test_one_row_per_group_costs_what_single_records_cost():
    model = PrivateLogisticRegression(1.0, 1e-6)
    plain = model.plan(5000, 4)
    grouped = clone(model).set_params(max_rows_per_group=1).plan(5000, 4)
    assert grouped.event == plain.event
    assert replace(grouped, groups=None) == plain


# --- observed against declared ---


def hospital(seed=0, n_groups=12):
    """Small groups of rows; the last group is the one that neighbors exchange."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, n_groups)
    sizes[-1] = 6
    ids = np.repeat(np.arange(n_groups), sizes)
    X = rng.normal(size=(len(ids), 3))
    return X, (rng.random(len(ids)) < 0.5).astype(int), ids


def exchanged(data):
    """The last group exchanged for one of opposite rows and another number of them."""
    X, y, ids = (part.copy() for part in data)
    mine = ids == ids[-1]
    X[mine] = np.array([3.0, -4.0, 5.0])
    y[mine] = 1
    first = (X, y, ids)
    other = (np.vstack([X[~mine], np.tile([-3.0, 4.0, -5.0], (4, 1))]), np.append(y[~mine], [1] * 4))
    return first, (*other, np.append(ids[~mine], [ids[-1]] * 4))


@pytest.mark.parametrize("solver", ["noisy-gd", "objective", "output", "newton", "psgd"])
def test_exchanging_a_whole_group_moves_inputs_by_k_records_at_most(solver):
    first, second = exchanged(hospital())
    model = PrivateLogisticRegression(
        1.0, 1e-3, classes=[0, 1], solver=solver, max_rows_per_group=2, fit_intercept=False
    )
    found = replay(fitting(model), first, second)
    assert not found.failed_checks, str(found)
    assert found.worst_ratio <= 1.0  # of what two records may do
    if solver == "noisy-gd":
        assert found.worst_ratio > 0.875  # nearly two records: the bound is not idle


def test_a_twin_that_forgets_the_bound_is_caught(monkeypatch):
    genuine = linear.bounded_rows

    def unbounded(ids, rows_per_group, *arguments, **options):
        return genuine(ids, 10, *arguments, **options)

    monkeypatch.setattr(linear, "bounded_rows", unbounded)
    first, second = exchanged(hospital())
    model = PrivateLogisticRegression(1.0, 1e-3, classes=[0, 1], solver="noisy-gd", max_rows_per_group=2)
    found = replay(fitting(model), first, second)
    assert "distance" in found.failed_checks
    assert found.worst_ratio > 1.5


@pytest.mark.parametrize("solver", ["noisy-gd", "objective"])
def test_a_twin_that_charges_a_group_as_one_row_is_caught(solver, monkeypatch):
    careless = vars(calibration) | {"group_event": lambda event, rows: event}
    monkeypatch.setattr(groups, "calibration", SimpleNamespace(**careless))
    first, second = exchanged(hospital())
    model = PrivateLogisticRegression(1.0, 1e-3, classes=[0, 1], solver=solver, max_rows_per_group=2)
    assert "price" in replay(fitting(model), first, second).failed_checks


@pytest.mark.parametrize("relation", PUBLIC_SIZE)
def test_the_plan_depends_on_the_number_of_groups_alone(relation):
    """Two tables with as many groups but different numbers of rows get the same plan and statement."""
    model = PrivateLogisticRegression(1.0, classes=[0, 1], neighboring=relation, max_rows_per_group=3)
    X, y, ids = hospital()
    many = clone(model).fit(X, y, groups=ids).privacy_
    _, firsts = np.unique(ids, return_index=True)
    few = clone(model).fit(X[firsts], y[firsts], groups=ids[firsts]).privacy_
    assert many == few
    assert "number of groups, 12, is public" in str(many)


def test_under_add_remove_the_declared_bound_on_rows_is_used():
    X, y, ids = hospital()
    model = PrivateLogisticRegression(
        1.0, classes=[0, 1], neighboring="add-remove-one", max_rows_per_group=2, n_samples=500
    )
    stated = model.fit(X, y, groups=ids).privacy_
    assert stated.bounds["records"] == 500
    with pytest.raises(ValueError, match="n_samples must be at least the number of rows, got 10"):
        clone(model).set_params(n_samples=10).fit(X, y, groups=ids)


# --- estimators ---


def test_every_exported_linear_model_takes_groups():
    models = [getattr(discreet, name) for name in discreet.__all__ if name.startswith("Private")]
    linear = {kind for kind in models if inspect.isclass(kind) and issubclass(kind, PrivateLinearModel)}
    assert len(linear) >= 8
    for kind in linear:
        assert "max_rows_per_group" in inspect.signature(kind).parameters, kind.__name__


@pytest.mark.parametrize(
    "model",
    [
        PrivateLogisticRegression(3.0, classes=["no", "yes"]),
        PrivateLinearSVC(3.0, classes=["no", "yes"]),
        PrivateSparseLogisticRegression(3.0, classes=["no", "yes"]),
        PrivateRidge(3.0, target_bounds=(-1, 1)),
        PrivateLinearRegression(3.0, target_bounds=(-1, 1)),
        PrivateHuberRegressor(3.0, target_bounds=(-1, 1)),
        PrivateQuantileRegressor(3.0, target_bounds=(-1, 1)),
        PrivateLasso(3.0, target_bounds=(-1, 1)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_estimator_learns_with_groups_and_says_so(model, tmp_path):
    rng = np.random.default_rng(5)
    ids = np.repeat(np.arange(6000), rng.integers(1, 5, 6000))
    X = rng.uniform(-0.5, 0.5, size=(len(ids), 2))
    target = np.clip(X @ [1.0, -1.0], -1, 1)
    y = np.where(target > 0, "yes", "no") if hasattr(model, "classes") else target
    ledger = Ledger(tmp_path / "users.ledger", epsilon=3.0, delta=1e-3)
    model = clone(model).set_params(max_rows_per_group=2, ledger=ledger)
    dense = clone(model).fit(X, y, groups=ids)
    assert dense.score(X, y) > (0.8 if hasattr(model, "classes") else 0.4)
    assert dense.privacy_.guarantee.unit == "user"
    assert "all rows of one person" in str(dense.privacy_)
    assert ledger.history()[0].event == dense.privacy_.event
    sparse = (
        clone(model).set_params(ledger=None, bad_rows="null").fit(sp.csr_array(X), y, groups=ids.astype(str))
    )
    assert sparse.privacy_.paid is None
    assert sparse.privacy_.guarantee == dense.privacy_.guarantee
    if not isinstance(model, PrivateSparseLogisticRegression):  # whose rule asks how the rows are stored
        assert dataclasses.replace(sparse.privacy_, assumptions=()) == dataclasses.replace(
            dense.privacy_, assumptions=(), paid=None
        )


# -- schemas that say whose row each row is --------------------------------------------------------------------------

VISITS = {
    "who": np.repeat([f"p{k}" for k in range(30)], 2),
    "a": np.linspace(-1, 1, 60),
    "y": np.tile([0, 1], 30),
}
OF_PEOPLE = discreet.Schema({"a": discreet.Numeric(-1, 1)}, discreet.Target("y", classes=(0, 1)), group="who")


def fits_of_visits(**most):
    """Every way from a table with a group column to a fit; those that read ids themselves need none."""
    linear_model = PrivateLogisticRegression(5.0, 1e-3, classes=[0, 1], **most)
    additive = discreet.PrivateAdditiveClassifier(5.0, 1e-3, schema=OF_PEOPLE, n_iterations=2, **most)
    search = discreet.PrivateSearchCV(
        PrivateLogisticRegression(classes=[0, 1]), {"l2": [0.1, 1.0]}, 5.0, 1e-3, **most
    )
    pipeline = make_pipeline(discreet.SchemaEncoder(OF_PEOPLE), linear_model)
    ids = {"groups": OF_PEOPLE.groups(VISITS)} if most else {}
    rows, labels = OF_PEOPLE.encode(VISITS)
    named = {f"privatelogisticregression__{name}": value for name, value in ids.items()}
    return {
        "additive": lambda: additive.fit(VISITS),
        "encoded": lambda: linear_model.fit(rows, labels, **ids),
        "pipeline": lambda: pipeline.fit(VISITS, VISITS["y"], **named)[-1],
        "search": lambda: search.fit(rows, labels, **ids),
        "components": lambda: discreet.PrivatePCA(5.0, 1e-3, n_components=1, **most).fit(rows, **ids),
        "median": lambda: discreet.PrivateMedian(5.0, 1e-3, radius=2.0, **most).fit(rows, **ids),
    }


@pytest.mark.parametrize("way", fits_of_visits())
def test_a_table_of_people_is_not_fitted_row_by_row(way):
    """Who has four rows would be protected at four times epsilon, beside a statement that each person is one row."""
    with pytest.raises(ValueError, match="max_rows_per_group"):
        fits_of_visits()[way]()
    assert fits_of_visits(max_rows_per_group=2)[way]().privacy_.guarantee.unit == "user"


ROWS_OF_PEOPLE = OF_PEOPLE.transform(VISITS)
TREE = DecisionTreeClassifier(max_depth=1)
#: Steps before and after a fit, and teachers, on rows that a schema with a group column has made.
AROUND = {
    "evaluate": lambda: discreet.evaluate(TREE.fit(ROWS_OF_PEOPLE, VISITS["y"]), ROWS_OF_PEOPLE, VISITS["y"]),
    "intervals": lambda: discreet.coefficient_intervals(
        PrivateRidge(1.0, 1e-3, target_bounds=(0, 1)).fit(np.asarray(ROWS_OF_PEOPLE), VISITS["y"]),
        ROWS_OF_PEOPLE,
        VISITS["y"],
    ),
    "quantiles": lambda: discreet.private_quantiles(ROWS_OF_PEOPLE, 0.5, candidates=[-1, 0, 1], epsilon=1.0),
    "norm": lambda: private_norm_bound(ROWS_OF_PEOPLE, epsilon=1.0),
    "teachers": lambda: discreet.PrivateTransferClassifier(
        TREE, n_teachers=10, delta=1e-3, classes=[0, 1]
    ).fit(ROWS_OF_PEOPLE, VISITS["y"], np.asarray(ROWS_OF_PEOPLE)),
    "labeler": lambda: discreet.PrivateLabeler(TREE, 5, 10, delta=1e-3, classes=[0, 1]).fit(
        ROWS_OF_PEOPLE, VISITS["y"]
    ),
    "chunks": lambda: subsample_and_aggregate(
        len, ROWS_OF_PEOPLE, [1, 2], n_chunks=10, epsilon=1.0, delta=1e-3
    ),
}


@pytest.mark.parametrize("step", AROUND)
def test_rows_of_people_are_protected_one_by_one_nowhere(step):
    with pytest.raises(ValueError, match=r"groups must be given.*group column"):
        AROUND[step]()
