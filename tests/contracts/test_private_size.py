"""Under add-remove-one the number of rows is private: what decides how rows are read and added is the declared bound.

The larger of two data sets has as many rows as the constants of the code ask for another way through it, the smaller
one has a row less, and all others move to other places. Both have the same declared bound. Without a null row nothing
may change but the order of sums; without a true one, sums move by what was declared. Neither may change what is asked,
how often, in which shapes, what is said, and what is shown.
"""

import functools
import importlib
import itertools
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))
import recipes
import releases

import discreet
from benchmarks import matrix
from discreet.audit.replay import replay
from discreet.audit.trace import running
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.problem import Problem
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds, BoxBounds
from discreet.records.partitioned import LocalParts, PartitionedRecords
from discreet.sets import L1Ball
from discreet.solvers import base
from discreet.solvers.class_sums.refocused import RefocusedSums
from discreet.solvers.gradients.noisy_gd import NoisyGradientDescent
from discreet.solvers.second_order import newton
from discreet.solvers.second_order.newton import NoisyNewton
from discreet.solvers.vertices.frank_wolfe import FrankWolfe

N, WIDE = 129, 10  # rows: one more than a block of the compiled passes; columns that these read in place
LAST = 5  # rows in the second of two parts
ORDER = 1e-11  # of a declared sensitivity: what another order of sums may change; singles would change 1e-7
#: Solvers with settings of which more is released, or something else.
VARIANTS = {
    "newton of frequencies": NoisyNewton(n_iterations=5, ordered_columns=True),
    "noisy-gd of centered rows": NoisyGradientDescent(n_iterations=5, level_rows=True, center_share=0.1),
    "refocused-sums of few columns": RefocusedSums(max_columns=4),
    "paced walk": FrankWolfe(n_iterations=4),
    "paced walk with a slope": FrankWolfe(n_iterations=4, slope_share=0.1),
}
#: By day the first and the last one run.
SOLVERS = {name: base.resolve(name) for name in ("newton", *base.names())} | VARIANTS
SOLVERS |= {"recipe": recipes.SOLVER.OneStep()}
#: Numbers of rows, or of entries, beyond which code does something else: from the larger size on, or up to the smaller.
ROWS = {
    "records.bounds": ("MAX_CHUNK_ROWS",),
    "records.clipped_rows": ("MAX_CHUNK_ROWS",),
    "records.arrays": ("_ROWS",),
    "solvers.second_order.coordinates": ("_ROWS",),
    "solvers.second_order.margins": ("_ROWS",),
    "additive.records": ("HEIGHT",),
}
ENTRIES = {
    "records.bounds": ("_BLOCK_ENTRIES",),
    "records.clipped_rows": ("COPY_ENTRIES", "_SMALL", "COMPILED_FROM"),
    "solvers.second_order.coordinates": ("COPY_ENTRIES", "COMPILED_FROM"),
    "solvers.gradients.row_centering": ("_BLOCK_ENTRIES",),
    "solvers.median": ("_CHUNK_ENTRIES",),
}
LARGER = ("_SMALL", "COMPILED_FROM")
REFUSED = {"psgd", "psgd-dissertation"}  # the number of their batches must be public
#: Much of it, because more is done where more is seen; exact samplers would take long.
EPSILON = dict.fromkeys(SOLVERS, 30.0) | {"exponential": 1.0, "localized": 1.0, "simplex-sampling": 1.0}


@functools.cache
def plans(name):
    """A plan for each of up to three losses, in a set only if there must be one; rows, of which one is long."""
    rng, found = np.random.default_rng(0), {}
    promise = Guarantee(EPSILON[name], 1e-4, Neighboring.ADD_REMOVE_ONE)
    for kind, loss in matrix.losses().items():
        family = kind if kind in ("logistic", "softmax") else "other"
        bound = matrix.LABEL_BOUND if kind in matrix.REAL_TARGETS else None
        sets = itertools.islice(matrix.geometries(loss.n_outputs).items(), 4)
        if name.startswith("paced walk"):
            sets = [("l1-ball of entries", L1Ball(3.0, WIDE + 1))]
        for inside, geometry in sets:
            columns = matrix.P if inside in matrix.geometries() and geometry is not None else WIDE
            bounds = Bounds(1.0, intercept=geometry is None)
            if inside == "l1-ball of entries":
                bounds = BoxBounds.of(WIDE)
            problem = Problem(loss, bounds, N, bounds.n_features(columns), 1, None, geometry, bound)
            if family in found:
                continue
            try:
                plan = SOLVERS[name].plan(problem, promise)
            except ValueError:
                continue
            X = rng.normal(size=(N, columns)) * 0.1
            X[0] = 3.0
            y = rng.integers(0, max(2, loss.n_outputs), N) * 1.0  # targets too
            y = 2 * y - 1 if bound is None and loss.n_outputs == 1 else y
            found[family] = f"{kind}, {inside}", plan, X, y
    return list(found.values())


@pytest.fixture
def between(monkeypatch):
    """Set all constants so that one more row crosses them, for rows of so many columns."""

    def set_to(n_columns):
        for each, places in ((1, ROWS), (n_columns, ENTRIES)):
            for module, names in places.items():
                for name in names:
                    size = N if name in LARGER else N - 1
                    monkeypatch.setattr(importlib.import_module(f"discreet.{module}"), name, each * size)

    return set_to


def records(form, X, y, null, bounds):
    """Rows in memory, in single precision, sparse, or in parts, of which the first begins with the row that goes."""

    def held(X, y, null):
        rows = X.astype(np.float32) if form == "float32" else sp.csr_array(X) if form == "csr" else X
        return ArrayRecords(rows, y, bounds, null, n_threads=2)

    if form != "parts":
        return held(X, y, null)
    cut = len(y) - LAST
    pieces = [held(X[rows], y[rows], null[rows]) for rows in (slice(0, cut), slice(cut, None))]
    return PartitionedRecords(LocalParts(pieces), [cut, LAST], X.shape[1], False, bounds, y)


def replayed(plan, X, y, form, *, of_null):
    """The plan on all rows, and on all but the first, which is null or not."""
    null = np.zeros(N, dtype=bool)
    null[0] = of_null
    one, two = (
        records(form, X[rows], y[rows], null[rows], plan.problem.bounds) for rows in (slice(N), slice(1, N))
    )
    return replay(running(plan), [one], [two], skip={"repeatable"})


@pytest.mark.parametrize("name", SOLVERS)
def test_a_row_more_or_less_decides_nothing(name, between):
    granted = plans(name)
    assert bool(granted) != (name in REFUSED)
    forms = itertools.cycle(["dense", "parts", "float32", "dense", "csr", "parts"])
    for place, plan, X, y in granted:
        between(X.shape[1])
        for of_null in (True, False):
            form = next(form for form in forms if form != "parts" or plan.sums_only)
            found = replayed(plan, X, y, form, of_null=of_null)
            assert found.passed, (place, form, str(found))
            if of_null and found.worst_input_ratio is not None:
                assert found.worst_input_ratio < ORDER, (place, form, str(found))


def test_a_private_number_of_rows_that_decides_is_caught(between, monkeypatch):
    """Rows rounded to singles where there are many, and not where there is one less: all of them move."""
    real = newton.singles
    monkeypatch.setattr(newton, "singles", lambda rows, declared: real(rows, rows.n_samples))
    place, plan, X, y = plans("newton")[0]
    between(X.shape[1])
    assert place == "logistic, none"
    assert replayed(plan, X, y, "dense", of_null=True).worst_input_ratio > 1e3 * ORDER
    assert "distance" in replayed(plan, X, y, "dense", of_null=False).failed_checks


# -- other releases ------------------------------------------------------------------------------------------------


BOUND = {"neighboring": "add-remove-one", "n_samples": N}
TOLD = {"epsilon": 1.0, "delta": 1e-2, **BOUND}


def asked(function, name):
    """A question about a model that is out already."""

    def program(data):
        X, y = data
        truth = releases.labels_of(y) if "Logistic" in name else y
        return function(releases.released(name), X, truth, bad_rows="null", **TOLD)

    return program


@functools.cache
def removable(name):
    """A model that is out already, under add-remove-one."""
    given = releases.given(releases.LINEAR[name], classes=releases.CLASSES)
    with insecure_noise(3), warnings.catch_warnings(action="ignore"):
        return releases.linear(name, **given, **BOUND)(releases.ordinary(99))


def intervals(name):
    told = {key: value for key, value in TOLD.items() if key != "neighboring"}  # that of the model

    def program(data):
        X, y = np.nan_to_num(data[0]), releases.labels_of(data[1]) if "Logistic" in name else data[1]
        return discreet.coefficient_intervals(removable(name), X, y, **told)

    return program


def components(method):
    told = {"n_components": 1, "method": method, "center": False, "bad_rows": "null"}
    return lambda data: discreet.PrivatePCA(**told, **TOLD).fit(data[0])


def median(data):
    return discreet.PrivateMedian(radius=2.0, bad_rows="null", **TOLD).fit(data[0])


def quantiles(data):
    told = {name: TOLD[name] for name in ("epsilon", "delta", "neighboring")} | {"bad_rows": "null"}
    return discreet.private_quantiles(data[0], [0.25, 0.75], candidates=np.linspace(-1, 1, 9), **told)


def described(data):
    table = {"a": data[0][:, 0], "b": data[0][:, 1], "y": releases.labels_of(data[1])}
    return discreet.describe(table, releases.DESCRIBED, pairs=[("b", "y")], bad_rows="null", **TOLD)


PROGRAMS = {
    "additive classes": releases.additive("PrivateAdditiveClassifier", pairs=1, **BOUND),
    "additive three classes": releases.additive("PrivateAdditiveClassifier", classes=[0, 1, 2], **BOUND),
    "additive targets": releases.additive("PrivateAdditiveRegressor", **BOUND),
    "additive counts": releases.additive(
        "PrivateAdditiveRegressor", target_bounds=(0.0, 10.0), loss="poisson", pairs=1, **BOUND
    ),
    "evaluate classifier": asked(discreet.evaluate, "PrivateLogisticRegression"),
    "evaluate regressor": asked(discreet.evaluate, "PrivateRidge"),
    "intervals of a classifier": intervals("PrivateLogisticRegression"),
    "intervals of a regressor": intervals("PrivateRidge"),
    **{f"components by {method}": components(method) for method in ("svd", "power", "oja")},
    "median": median,
    "quantiles": quantiles,
    "describe": described,
}
#: Without null rows: cells of one count as missing, or it is refused.
MISSING = {"describe", "intervals of a classifier", "intervals of a regressor"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_row_more_or_less_decides_nothing_in_other_releases(name, between):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, size=(N, releases.P))
    y = np.clip(X[:, 0] - X[:, 1] + rng.normal(size=N) / 5, -1.0, 1.0)
    for model in ("PrivateLogisticRegression", "PrivateRidge"):
        releases.released(model)
        removable(model)
    between(releases.P)
    for first in (np.nan, 0.7):
        X[0] = first
        found = replay(PROGRAMS[name], (X, y), (X[1:], y[1:]), skip={"repeatable"})
        assert found.passed, str(found)
        if np.isnan(first) and name not in MISSING:
            assert (found.worst_input_ratio or 0.0) < ORDER, str(found)
