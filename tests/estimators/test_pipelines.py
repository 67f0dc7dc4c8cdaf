"""check_pipeline: every step that learns without paying is named, and no other."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from discreet import (
    Numeric,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    Schema,
    SchemaEncoder,
    check_pipeline,
)

MODEL = PrivateLogisticRegression(classes=[0, 1])
ENCODER = SchemaEncoder(Schema({"age": Numeric(0, 100)}))


@pytest.mark.parametrize(
    "step",
    [
        ENCODER,
        Normalizer(),
        FunctionTransformer(np.abs),
        HashingVectorizer(),
        PolynomialFeatures(2),
        OneHotEncoder(categories=[["a", "b"]]),
        OrdinalEncoder(categories=[["a", "b"]]),
        SimpleImputer(strategy="constant", keep_empty_features=True),
        FrozenEstimator(StandardScaler()),
        "passthrough",
    ],
    ids=lambda step: type(step).__name__,
)
def test_steps_that_learn_nothing_pass(step):
    assert check_pipeline(make_pipeline(step, MODEL)).passed


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (StandardScaler(), "standard deviations"),
        (OneHotEncoder(), "categories=["),
        (OneHotEncoder(categories=[["a", "b"]], min_frequency=0.1), "categories"),
        (SimpleImputer(strategy="constant"), "keep_empty_features=True"),
        (SimpleImputer(), "constant"),
        (PCA(2), "FrozenEstimator"),
        (SelectKBest(), "which columns"),
    ],
    ids=lambda part: type(part).__name__ if not isinstance(part, str) else "",
)
def test_steps_that_learn_are_named_with_what_to_do(step, word):
    found = check_pipeline(make_pipeline(step, MODEL))
    (one,) = found.unpaid
    assert one.kind == type(step).__name__
    assert word in str(found)
    assert not found.passed


def test_nested_steps_are_named_as_set_params_names_them():
    table = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a"]),
            ("words", OneHotEncoder(), ["b"]),
        ],
        remainder=MinMaxScaler(),
    )
    pipe = make_pipeline(table, FeatureUnion([("same", "passthrough"), ("pca", PCA())]), MODEL)
    names = [step.name for step in check_pipeline(pipe).unpaid]
    assert names == [
        "columntransformer__numbers__simpleimputer",
        "columntransformer__numbers__standardscaler",
        "columntransformer__words",
        "columntransformer__remainder",
        "featureunion__pca",
    ]
    known = pipe.get_params()
    assert all(name in known for name in names)
    assert check_pipeline(make_column_transformer((Normalizer(), ["a"]))).passed


@pytest.mark.parametrize(
    ("model", "instead"),
    [
        (LogisticRegression(), "use a private model"),
        (GridSearchCV(MODEL, {"l2": [1.0]}), "PrivateSearchCV"),
        (CalibratedClassifierCV(MODEL), "need none"),
        (BaggingClassifier(MODEL), "use a private model"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_models_that_do_not_pay_are_named(model, instead):
    assert instead in str(check_pipeline(model))


def test_models_that_pay_pass():
    assert check_pipeline(PrivateSearchCV(MODEL, {"l2": [1.0, 10.0]}, 1.0)).passed
    assert check_pipeline(TransformedTargetRegressor(PrivateRidge(target_bounds=(0, 1)))).passed
    assert "pays" in str(check_pipeline(make_pipeline(ENCODER, MODEL)))
    with pytest.raises(TypeError, match="pipeline must be"):
        check_pipeline({"age": [1]})
