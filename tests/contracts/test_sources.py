"""Every public way to pass rows, on every source: it works, or the error says what to do before anything is charged."""

import contextlib
import inspect

import numpy as np
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import discreet
from discreet import Ledger, Numeric, Schema, Target
from discreet._api import HOMES
from discreet.losses import Squared
from tests.contracts.sources import SOURCES

N = 240
RNG = np.random.default_rng(0)
TABLE = pa.table({"a": RNG.uniform(-1, 1, N), "b": RNG.uniform(-1, 1, N), "y": RNG.integers(0, 2, N)})
RATED = pa.table({"user": np.arange(N) // 4, "item": np.arange(N) % 4, "rating": RNG.integers(1, 6, N)})
FEATURES, LABELS = np.column_stack([TABLE["a"], TABLE["b"]]), TABLE["y"].to_numpy()
PUBLIC = RNG.uniform(-1, 1, size=(10, 2))
SCHEMA = Schema({"a": Numeric(-1, 1), "b": Numeric(-1, 1)}, Target("y", (0, 1)))
DELTA = 1e-6


def named(name, **told):
    """A model with a target that is a column."""

    def run(rows, ledger):
        return getattr(discreet, name)(delta=DELTA, ledger=ledger, **told).fit(rows, target="y")

    return run


def additive(name, **told):
    return lambda rows, ledger: getattr(discreet, name)(
        schema=SCHEMA, delta=DELTA, n_iterations=2, ledger=ledger, **told
    ).fit(rows)


def fitted():
    return discreet.PrivateLogisticRegression(delta=DELTA, classes=[0, 1]).fit(FEATURES, LABELS)


def searched(rows, ledger):
    model = discreet.PrivateLogisticRegression(delta=DELTA, classes=[0, 1], solver="noisy-gd")
    told = {"delta": DELTA, "classes": [0, 1], "ledger": ledger}
    return discreet.PrivateSearchCV(model, {"feature_bound": [1.0, 2.0]}, **told).fit(rows, target="y")


def selected(rows, ledger):
    model = discreet.PrivateLogisticRegression(delta=DELTA, classes=[0, 1], solver="noisy-gd")
    return discreet.PrivateSelection([model], delta=DELTA, classes=[0, 1], ledger=ledger).fit(
        rows, target="y"
    )


def online(rows, ledger):
    told = {"n_features": 2, "horizon": 300, "delta": DELTA, "classes": [0, 1], "ledger": ledger}
    return discreet.PrivateOnlineLinearModel(**told).partial_fit(rows, LABELS)


ADVICE = r"read it first|read the file first|collect\(\) it first|pass a pandas or polars DataFrame"
CLASSES, RANGE = {"classes": [0, 1]}, {"target_bounds": (0.0, 1.0)}
WORK = {
    "PrivateAdditiveClassifier": additive("PrivateAdditiveClassifier"),
    "PrivateAdditiveRegressor": additive("PrivateAdditiveRegressor", **RANGE),
    "PrivateERM": named("PrivateERM", loss=Squared(1.0, 1.0)),
    "PrivateHuberRegressor": named("PrivateHuberRegressor", **RANGE),
    "PrivateLasso": named("PrivateLasso", **RANGE),
    "PrivateLinearRegression": named("PrivateLinearRegression", **RANGE),
    "PrivateLinearSVC": named("PrivateLinearSVC", **CLASSES),
    "PrivateLogisticRegression": named("PrivateLogisticRegression", **CLASSES),
    "PrivatePCA": lambda rows, ledger: discreet.PrivatePCA(n_components=1, delta=DELTA, ledger=ledger).fit(
        rows
    ),
    "PrivatePoissonRegressor": named("PrivatePoissonRegressor", target_bounds=(0.1, 2.0)),
    "PrivateQuantileRegressor": named("PrivateQuantileRegressor", **RANGE),
    "PrivateRidge": named("PrivateRidge", **RANGE),
    "PrivateSearchCV": searched,
    "PrivateSelection": selected,
    "PrivateSimplexClassifier": named("PrivateSimplexClassifier", solver="noisy-gd", **CLASSES),
    "PrivateSimplexRegressor": named("PrivateSimplexRegressor", solver="noisy-gd", **RANGE),
    "PrivateSparseLinearSVC": named("PrivateSparseLinearSVC", **CLASSES),
    "PrivateSparseLogisticRegression": named("PrivateSparseLogisticRegression", **CLASSES),
    "PrivateTransferClassifier": lambda rows, ledger: discreet.PrivateTransferClassifier(
        DecisionTreeClassifier(max_depth=2), n_teachers=12, delta=DELTA, ledger=ledger, **CLASSES
    ).fit(rows, X_public=PUBLIC, target="y"),
    "PrivateMatrixCompletion": lambda rows, ledger: discreet.PrivateMatrixCompletion(
        "profile", rating_bounds=(1, 5), delta=DELTA, items=range(4), ledger=ledger
    ).fit(rows),
    "describe": lambda rows, ledger: discreet.describe(rows, SCHEMA, delta=DELTA, ledger=ledger),
    "evaluate": lambda rows, ledger: discreet.evaluate(
        fitted(), rows, target="y", delta=DELTA, ledger=ledger
    ),
}
#: What needs rows in memory; Dask frames are brought there where that is meant.
REFUSE = {
    "PrivateLabeler": lambda rows, ledger: discreet.PrivateLabeler(
        DecisionTreeClassifier(), delta=DELTA, ledger=ledger, **CLASSES
    ).fit(rows, LABELS),
    "PrivateMedian": lambda rows, ledger: discreet.PrivateMedian(radius=2.0, ledger=ledger).fit(rows),
    "PrivateOnlineLinearModel": online,
    "PrivateTransferRegressor": lambda rows, ledger: discreet.PrivateTransferRegressor(
        DecisionTreeRegressor(), bounds=(0, 1), delta=DELTA, ledger=ledger
    ).fit(rows, LABELS, PUBLIC),
    "SchemaEncoder": lambda rows, ledger: discreet.SchemaEncoder(SCHEMA).fit(rows).transform(rows),
    "coefficient_intervals": lambda rows, ledger: discreet.coefficient_intervals(
        fitted(), rows, LABELS, delta=DELTA, ledger=ledger
    ),
    "private_domains": lambda rows, ledger: discreet.private_domains(
        rows, {"a": np.linspace(-1, 1, 9)}, epsilon=1.0, ledger=ledger
    ),
    "private_error_rate": lambda rows, ledger: discreet.private_error_rate(
        DecisionTreeClassifier(), rows, LABELS, epsilon=1.0, n_teachers=5, ledger=ledger, **CLASSES
    ),
    "private_norm_bound": lambda rows, ledger: discreet.private_norm_bound(rows, epsilon=1.0, ledger=ledger),
    "private_quantiles": lambda rows, ledger: discreet.private_quantiles(
        rows, 0.5, candidates=np.linspace(-1, 1, 9), epsilon=1.0, ledger=ledger
    ),
}
WITHOUT_ROWS = {"PrivateFTRL"}  # learns from vectors of costs
FRAMES = {"X", "table", "user_items"}


def takes_rows(name):
    found = getattr(discreet, name)
    ways = (
        (found,)
        if not inspect.isclass(found)
        else (getattr(found, "fit", None), getattr(found, "partial_fit", None))
    )
    return any(callable(way) and FRAMES & inspect.signature(way).parameters.keys() for way in ways)


def test_everything_that_takes_rows_is_listed():
    assert {name for name in HOMES if takes_rows(name)} == (WORK | REFUSE).keys() - WITHOUT_ROWS


@pytest.mark.parametrize("source", SOURCES, ids=lambda key: key[1])
@pytest.mark.parametrize("name", WORK)
@pytest.mark.filterwarnings("ignore")
def test_it_works(name, source, tmp_path):
    ledger = Ledger(tmp_path / "budget", 20.0, 1e-2)
    once = (name, source[1]) == ("PrivateMatrixCompletion", "stream")
    refused = pytest.raises(ValueError, match="read only once") if once else contextlib.nullcontext()
    with SOURCES[source](RATED if name == "PrivateMatrixCompletion" else TABLE) as rows, refused:
        WORK[name](rows, ledger)
    assert len(ledger.history()) == (0 if once else 1)


@pytest.mark.parametrize("source", [key for key in SOURCES if key[1] != "Dask"], ids=lambda key: key[1])
@pytest.mark.parametrize("name", REFUSE)
@pytest.mark.filterwarnings("ignore")
def test_it_says_what_to_do(name, source, tmp_path):
    """Tables of DuckDB and streams are tables for Arrow as well: an encoder may take them as such."""
    ledger = Ledger(tmp_path / "budget", 20.0, 1e-2)
    may_pass = name == "SchemaEncoder" and source[1] in ("DuckDB", "stream")
    refused = pytest.raises((ValueError, TypeError), match=ADVICE)
    with SOURCES[source](TABLE) as rows, contextlib.nullcontext() if may_pass else refused:
        REFUSE[name](rows, ledger)
    assert ledger.history() == []
