"""What other tools predict from a released model: the same, on rows of every size."""

import warnings

import numpy as np
import onnxruntime
import pytest

import discreet
from discreet import card

N = 3000
MODELS = {
    "logistic": (discreet.PrivateLogisticRegression, {"classes": [0, 1]}),
    "no intercept": (discreet.PrivateLogisticRegression, {"classes": ["no", "yes"], "fit_intercept": False}),
    "softmax": (discreet.PrivateLogisticRegression, {"classes": [0, 1, 2]}),
    "one against the rest": (
        discreet.PrivateLogisticRegression,
        {"classes": [0, 1, 2], "multi_class": "ovr"},
    ),
    "svm": (discreet.PrivateLinearSVC, {"classes": ["a", "b", "c"]}),
    "sparse": (discreet.PrivateSparseLogisticRegression, {"classes": [0, 1], "l1_radius": 5.0}),
    "ridge": (discreet.PrivateRidge, {"target_bounds": (-1, 3)}),
    "huber": (discreet.PrivateHuberRegressor, {"target_bounds": (-1, 3), "fit_intercept": False}),
    "lasso": (discreet.PrivateLasso, {"target_bounds": (-1, 3), "l1_radius": 5.0}),
}
# Squares overflow beyond 2**512; rows with an entry beyond 2**300 are taken for none.
SIZES = [0.0, 5e-324, 1e-160, 1e-3, 0.5, 1.0, 3.0, 1e8, 2.0**299, 2.0**301, 2.0**511, 2.0**600, 1e300]


@pytest.fixture(scope="module")
def rows():
    directions = np.random.default_rng(3).normal(size=(6, 3))
    directions /= np.abs(directions).max(axis=1, keepdims=True)
    return np.concatenate([size * directions for size in SIZES])


def fitted(name):
    X = np.random.default_rng(5).normal(size=(N, 3))
    kind, parameters = MODELS[name]
    model = kind(epsilon=2.0, delta=1e-6, feature_bound=1.5, **parameters)
    if "target_bounds" in parameters:
        return model.fit(X, np.clip(X @ [0.5, -0.3, 0.1] + 1, -1, 3))
    codes = np.digitize(X[:, 0], [0.0] if len(model.classes) == 2 else [-0.5, 0.5])
    return model.fit(X, np.asarray(model.classes)[codes])


@pytest.mark.parametrize("name", MODELS)
def test_an_onnx_graph_predicts_as_the_model_does(name, rows, tmp_path):
    model = fitted(name)
    card.to_onnx(model, tmp_path / "model.onnx")
    outputs = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": rows})
    expected = model.predict(rows)
    if "target_bounds" in MODELS[name][1]:
        np.testing.assert_allclose(outputs[0], expected, rtol=1e-9, atol=1e-12)
        return
    np.testing.assert_array_equal(outputs[0].astype(model.classes_.dtype), expected)
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(outputs[1], model.predict_proba(rows), rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name not in ("sparse", "ridge", "huber", "lasso")]
)
def test_scikit_learn_gives_the_same_labels_to_rows_that_are_shrunk_as_a_whole(name, rows):
    model = fitted(name)
    usual = rows[np.abs(rows).max(axis=1) <= 2.0**300]
    with warnings.catch_warnings(action="ignore"):  # scikit-learn's own exponentials overflow
        found = card.to_sklearn(model).predict(usual)
    np.testing.assert_array_equal(found, model.predict(usual))


@pytest.mark.parametrize("name", MODELS)
def test_scikit_learn_agrees_in_full_on_rows_within_the_bound(name, rows):
    model = fitted(name)
    inside = rows[np.linalg.norm(np.minimum(np.abs(rows), 10.0), axis=1) <= 0.9]
    assert len(inside) > 20
    plain, method = card.to_sklearn(model), "predict_proba" if hasattr(model, "predict_proba") else "predict"
    expected = getattr(model, method)(inside)
    found = getattr(plain, method)(inside)
    if found.dtype.kind == "f":
        if "target_bounds" in MODELS[name][1]:
            found = np.clip(found, *model.target_bounds)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)
