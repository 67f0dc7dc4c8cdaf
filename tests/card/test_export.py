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


SCHEMA = discreet.Schema(
    {
        "age": discreet.Numeric(0.0, 100.0),
        "gain": discreet.Numeric(0.0, 1e5, logarithmic=True, missing_feature=True),
        "weight": discreet.Numeric(0.0, 200.0, default=80.0),
        "ward": discreet.Categorical(("a", "b", "c", "d", "e", "f")),
        "unit": discreet.Categorical((1, 2, 3, 4, 5), unknown="bucket"),
        "visits": discreet.Binned((1.0, 2.0, 5.0)),
        "smoker": discreet.Boolean(),
    }
)
ADDITIVE = {
    "classes": (discreet.PrivateAdditiveClassifier, {"classes": ["no", "yes"], "pairs": 3}),
    "three classes": (discreet.PrivateAdditiveClassifier, {"classes": [0, 1, 2], "pairs": 1}),
    "target": (discreet.PrivateAdditiveRegressor, {"target_bounds": (-1.0, 3.0), "pairs": 2}),
    "counts": (
        discreet.PrivateAdditiveRegressor,
        {"target_bounds": (0.0, 9.0), "loss": "poisson", "pairs": 2},
    ),
}


def patients(n, seed):
    """Cells of every kind, some missing, some undeclared, some on an edge."""
    rng = np.random.default_rng(seed)

    def holes(values, share=0.1):
        return np.where(rng.uniform(size=n) < share, np.nan, values)

    return {
        "age": holes(np.round(rng.uniform(-5, 110, n))),
        "gain": holes(np.exp(rng.uniform(0, 12, n)) - 1, 0.3),
        "weight": holes(rng.uniform(40, 210, n)),
        "ward": rng.choice(["a", "b", "c", "d", "e", "f", "other", "", "NA"], n),
        "unit": rng.choice(["1", "2", "3", "4", "5", "6", "", "NaN", "?"], n),
        "visits": holes(rng.integers(0, 7, n).astype(float)),
        "smoker": holes(rng.integers(0, 2, n).astype(float)),
    }


def additive(name, **parameters):
    kind, known = ADDITIVE[name]
    if "feature_bounds" in parameters and "pairs" in known:
        known = {**known, "pairs": 1}  # two columns have no more
    model = kind(epsilon=5.0, delta=1e-6, n_iterations=5, **known, **parameters)
    table = patients(N, 1)
    y = np.nan_to_num(table["age"]) / 40 + (table["ward"] == "c")
    if "target_bounds" not in known:
        y = np.asarray(known["classes"])[np.digitize(y, [1.5] if name == "classes" else [1.0, 2.5])]
    if "feature_bounds" in parameters:
        return model.fit(np.nan_to_num(np.column_stack([table["age"], table["weight"]])), y)
    return model.fit(table, y)


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("source", ["table", "array"])
def test_an_onnx_graph_of_an_additive_model_predicts_as_it_does(name, source, tmp_path):
    if source == "table":
        model, rows = additive(name, schema=SCHEMA), patients(500, 2)
        inputs = {
            column: cells if cells.dtype.kind == "f" else cells.astype(object)
            for column, cells in rows.items()
        }
    else:
        model, rows = additive(name, feature_bounds=[(0, 100), (0, 200)]), patients(500, 2)
        rows = np.nan_to_num(np.column_stack([rows["age"], rows["weight"]]))
        inputs = {"X": rows}
    place = next(iter(model.shapes_))
    edited = -np.asarray(model.model_.shapes[0].values)
    model.set_shape(place, edited)  # what is exported is what predicts
    card.to_onnx(model, tmp_path / "model.onnx")
    outputs = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, inputs)
    if hasattr(model, "classes_"):
        np.testing.assert_array_equal(outputs[0].astype(model.classes_.dtype), model.predict(rows))
        np.testing.assert_allclose(outputs[1], model.predict_proba(rows), rtol=1e-9, atol=1e-14)
    else:
        np.testing.assert_allclose(outputs[0], model.predict(rows), rtol=1e-11)
        assert len(np.unique(outputs[0])) > 100


def test_additive_models_that_other_tools_cannot_hold_are_refused(tmp_path):
    model = additive("target", feature_bounds=[(0, 100), (0, 200)])
    with pytest.raises(card.CardError, match="to_onnx"):
        card.to_sklearn(model)
    schema = discreet.Schema({"label": discreet.Numeric(0.0, 1.0)})
    column = {"label": np.linspace(0, 1, 2000)}
    model = discreet.PrivateAdditiveRegressor(
        5.0, 1e-6, schema=schema, target_bounds=(0, 1), n_iterations=2
    ).fit(column, column["label"])
    with pytest.raises(card.CardError, match="rename"):
        card.to_onnx(model, tmp_path / "model.onnx")


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


@pytest.mark.parametrize("name", MODELS)
def test_exports_of_equal_releases_are_equal_whatever_the_data(name, tmp_path):
    """Equal coefficients, other rows, labels and types of cells: the same bytes and attributes."""
    kind, parameters = MODELS[name]
    rng, files, plain = np.random.default_rng(5), [], []
    for rows in (rng.normal(size=(N, 3)), rng.integers(-9, 9, size=(N, 3)), np.zeros((N, 3), np.float32)):
        model = kind(epsilon=2.0, delta=1e-6, feature_bound=1.5, **parameters)
        if "target_bounds" in parameters:
            model.fit(rows, np.full(N, len(files)))
        else:  # a class that no row has, and rows of one class only
            codes = np.arange(N) % (2 if len(files) else 1)
            model.fit(rows, np.asarray(model.classes)[codes])
        model.coef_ = np.linspace(-1, 1, model.coef_.size).reshape(model.coef_.shape)
        model.intercept_ = np.zeros_like(model.intercept_)
        card.to_onnx(model, tmp_path / f"{len(files)}.onnx")
        files.append((tmp_path / f"{len(files)}.onnx").read_bytes())
        plain.append(vars(card.to_sklearn(model)))
    assert files[0] == files[1] == files[2]
    assert str(tmp_path).encode() not in files[0]
    assert repr(plain[0]) == repr(plain[1]) == repr(plain[2])
