"""One table, and what every kind of estimator releases of it: shared by tests of sources and of Spark."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from discreet import (
    Categorical,
    Numeric,
    PrivateAdditiveClassifier,
    PrivateLogisticRegression,
    PrivateMatrixCompletion,
    PrivateRidge,
    PrivateSearchCV,
    PrivateTransferClassifier,
    Schema,
    Target,
    describe,
    evaluate,
)

N = 240
RNG = np.random.default_rng(3)
TABLE = pa.table(
    {
        "a": RNG.normal(size=N).round(3),
        "b": RNG.integers(0, 5, size=N),
        "sick": RNG.random(N) < 0.5,
        "ward": RNG.choice(["north", "south"], size=N),
    }
)
NUMBERS = TABLE.select(["a", "b", "sick"]).append_column("y", pa.array(RNG.integers(0, 2, size=N)))
RATED = pa.table(
    {
        "user": np.repeat(np.arange(60), 4),
        "item": np.tile([0, 1, 2, 3], 60),
        "rating": RNG.integers(1, 6, size=N),
    }
)
SCHEMA = Schema(
    {"a": Numeric(-3, 3), "b": Numeric(0, 5), "ward": Categorical(("north", "south"))},
    Target("sick", (False, True)),
)

LINEAR = PrivateLogisticRegression(
    epsilon=2.0, delta=1e-6, feature_bound=3.0, classes=[0, 1], solver="noisy-gd"
)
TREES = PrivateTransferClassifier(
    DecisionTreeClassifier(max_depth=2),
    n_teachers=12,
    aggregator="plurality",
    epsilon=5.0,
    delta=1e-6,
    classes=[0, 1],
)
RATINGS = PrivateMatrixCompletion("profile", rating_bounds=(1, 5), epsilon=5.0, delta=1e-6, items=range(4))
ADDITIVE = PrivateAdditiveClassifier(schema=SCHEMA, epsilon=2.0, delta=1e-6, n_iterations=2)
MODEL = PrivateRidge(target_bounds=(0, 1), delta=1e-6, feature_bound=3.0)
PUBLIC = RNG.normal(size=(30, 3))


ESTIMATORS = (
    "linear",
    "words",
    "targets",
    "schema",
    "transfer",
    "search",
    "evaluation",
    "recommender",
    "describe",
    "additive",
)


def table_for(estimator):
    """The table that an estimator learns from."""
    if estimator == "recommender":
        return RATED
    return TABLE if estimator in ("words", "schema", "describe", "additive") else NUMBERS


def release(estimator, data, model=None):
    """What an estimator gives out, as arrays; ``model`` is the one to evaluate."""
    if estimator == "linear":
        found = LINEAR.fit(data, target="y")
        return [found.coef_, found.intercept_], found.privacy_
    if estimator == "words":  # labels that are words, and a column of Booleans among the features
        found = clone(LINEAR).set_params(classes=["north", "south"]).fit(data, target="ward")
        return [found.coef_, found.intercept_], found.privacy_
    if estimator == "targets":
        found = clone(MODEL).set_params(target_bounds=(-3, 3)).fit(data, target="a")
        return [found.coef_, found.intercept_], found.privacy_
    if estimator == "schema":
        found = LINEAR.fit(data, schema=SCHEMA)
        return [found.coef_, found.intercept_], found.privacy_
    if estimator == "transfer":
        named = isinstance(data, pa.Table | pd.DataFrame | pl.DataFrame)  # then public rows have names too
        public = pa.table(list(PUBLIC.T), ["a", "b", "sick"]) if named else PUBLIC
        found = TREES.fit(data, X_public=public, target="y")
        return [found.labels_], found.privacy_
    if estimator == "search":
        search = PrivateSearchCV(
            LINEAR, {"feature_bound": [1.0, 3.0]}, epsilon=5.0, delta=1e-6, classes=[0, 1]
        )
        found = search.fit(data, target="y")
        return [found.best_estimator_.coef_], found.privacy_
    if estimator == "evaluation":
        found = evaluate(model, data, target="y", epsilon=2.0, delta=1e-6)
        return [metric.value for metric in found.metrics.values()], found.privacy_
    if estimator == "additive":
        found = ADDITIVE.fit(data)
        return [np.concatenate(list(found.released_.values()), axis=None)], found.privacy_
    if estimator == "recommender":
        found = RATINGS.fit(data)
        return list(found.released_.values()), found.privacy_
    found = describe(data, SCHEMA, epsilon=2.0, delta=1e-6)
    return [found["a"].mean.value, found["ward"].histogram["north"].value], found.privacy_
