"""Hand a released model to other tools: as a scikit-learn estimator, or as an ONNX graph.

Both are post-processing of released numbers, so the promise of the model goes with them unchanged.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from discreet._files import write_atomically
from discreet.card import kinds
from discreet.card.card import Card
from discreet.card.kinds import CardError
from discreet.records.bounds import LARGEST_ENTRY, BoxBounds

_OPSET = 17


def to_sklearn(model: Any) -> Any:
    """A plain scikit-learn estimator with the same coefficients.

    Labels agree for every row with entries up to 2**300 where the model shrinks rows as a whole, which changes neither
    the sign nor the order of linear scores. `PrivateSparseLogisticRegression` cuts single entries, which does: cut them
    before scikit-learn sees them, ``np.clip(X, -model.feature_bound, model.feature_bound)``. Probabilities and
    regression predictions agree for rows within ``feature_bound``; other rows, and predictions beyond
    ``target_bounds``, are clipped by the private model and not by scikit-learn's. `to_onnx` clips them all.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import PrivateLogisticRegression, card
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> model = PrivateLogisticRegression(classes=[0, 1]).fit(X, (X[:, 0] > 0).astype(int))
    >>> plain = card.to_sklearn(model)
    >>> type(plain).__name__, bool((plain.predict(X) == model.predict(X)).all())
    ('LogisticRegression', True)
    """
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer
    from sklearn.svm import LinearSVC

    card = Card.of(model)
    coef, intercept = (card.arrays[name].copy() for name in _linear(card))
    if card.classes is None:
        plain = LinearRegression()
        plain.coef_, plain.intercept_ = coef, float(intercept)
    elif "SVC" in card.estimator:
        plain = LinearSVC()
        plain.coef_, plain.intercept_, plain.classes_ = coef, intercept, card.classes.copy()
    elif len(coef) > 1 and card.facts.get("multi_class_") == "ovr":
        plain = OneVsRestClassifier(LogisticRegression())
        plain.estimators_ = []
        for row, shift in zip(coef, intercept, strict=True):
            one = LogisticRegression()
            one.coef_, one.intercept_, one.classes_ = row[None, :], np.array([shift]), np.array([0, 1])
            one.n_features_in_ = card.n_features
            plain.estimators_.append(one)
        plain.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(card.classes)
        plain.classes_ = plain.label_binarizer_.classes_
    else:
        plain = LogisticRegression()
        plain.coef_, plain.intercept_, plain.classes_ = coef, intercept, card.classes.copy()
    plain.n_features_in_ = card.n_features
    if card.feature_names is not None:
        plain.feature_names_in_ = np.array(card.feature_names, dtype=object)
    return plain


def to_onnx(model: Any, path: str | os.PathLike[str]) -> None:
    """Write an ONNX graph that predicts as the model does, clipping included.

    Input ``X`` (float64, rows x features). A classifier has the outputs ``label`` and ``score`` (probabilities of a
    logistic model, decision values otherwise), a regressor the output ``prediction``. Needs the extra ``onnx``.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ImportError("ONNX export needs the package onnx: pip install 'discreet[onnx]'") from None

    card = Card.of(model)
    names = _linear(card)
    constants: dict[str, np.ndarray[Any, Any]] = {}
    nodes: list[Any] = []

    def constant(name: str, value: Any) -> str:
        constants[name] = np.asarray(value)
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    coef = np.atleast_2d(card.arrays[names[0]])
    intercept = np.atleast_1d(card.arrays[names[1]])
    middle = 0.0 if card.classes is not None else float(np.mean(card.parameters["target_bounds"]))
    intercepted = bool(card.parameters["fit_intercept"])
    bound = float(card.parameters["feature_bound"])
    sizes = node("ReduceMax", [node("Abs", ["X"], "entries")], "sizes", axes=[1], keepdims=1)
    if "l1_radius" in card.parameters:  # entries are clipped one by one
        rows = node("Clip", ["X", constant("low", -bound), constant("high", bound)], "clipped")
        scale = None
    elif isinstance(card.row_bounds, BoxBounds):
        largest = node("Max", [sizes, constant("bound", [[1.0]])], "sizes at least")
        scale = node("Div", ["bound", largest], "scale")
        rows = "X"
    else:
        squares = node("ReduceSumSquare", ["X"], "squares", axes=[1], keepdims=1)
        if intercepted:
            squares = node("Add", [squares, constant("one", [[1.0]])], "squares with the intercept")
        norms = node(
            "Max", [node("Sqrt", [squares], "norms"), constant("bound", [[bound]])], "norms at least"
        )
        scale = node("Div", ["bound", norms], "scale")
        rows = "X"
    raw = node("MatMul", [rows, constant("coefficients", coef.T.copy())], "products")
    raw = node("Add", [raw, constant("intercepts", intercept[None, :] - middle)], "linear")
    if scale is not None:
        # A row beyond what a fit takes for a record counts as none.
        usual = node("LessOrEqual", [sizes, constant("most", [[LARGEST_ENTRY]])], "usual")
        scale = node("Where", [usual, scale, constant("none", [[0.0]])], "scale of usual rows")
        raw = node("Mul", [raw, scale], "raw")
    if card.classes is None:
        low, high = card.parameters["target_bounds"]
        raw = node("Add", [raw, constant("middle", [[middle]])], "moved")
        raw = node("Clip", [raw, constant("lowest", float(low)), constant("highest", float(high))], "inside")
        node("Reshape", [raw, constant("flat", np.array([-1]))], "prediction")
        outputs = [helper.make_tensor_value_info("prediction", TensorProto.DOUBLE, ["rows"])]
    else:
        outputs = _decide(card, raw, constant, node)
    graph = helper.make_graph(
        nodes,
        card.estimator,
        [helper.make_tensor_value_info("X", TensorProto.DOUBLE, ["rows", card.n_features])],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
        doc_string=str(card.privacy),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="discreet")
    made.ir_version = min(made.ir_version, 8)  # what opset 17 needs: older runtimes read it too
    onnx.checker.check_model(made)
    write_atomically(path, made.SerializeToString())


def _decide(card: Card, raw: str, constant: Any, node: Any) -> list[Any]:
    """Labels and scores of a classifier."""
    from onnx import TensorProto, helper

    assert card.classes is not None
    text = card.classes.dtype.kind == "U"
    labels = card.classes.astype(object) if text else card.classes
    if labels.dtype == bool:
        labels = labels.astype(np.int64)
    kind = TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(labels.dtype)
    logistic = kinds.family(card.estimator).probabilities
    if len(card.classes) == 2:
        positive = node("Sigmoid", [raw], "positive") if logistic else raw
        negative = node("Sub", [constant("whole", [[1.0]]), positive], "negative") if logistic else None
        negative = node("Neg", [raw], "negative") if negative is None else negative
        score = node("Concat", [negative, positive], "score", axis=1)
        decided = node("Concat", [node("Neg", [raw], "against"), raw], "decided", axis=1)
    else:
        decided = raw
        if not logistic:
            score = node("Identity", [raw], "score")
        elif card.facts.get("multi_class_") == "softmax":
            score = node("Softmax", [raw], "score", axis=1)
        else:
            chances = node("Sigmoid", [raw], "chances")
            total = node("ReduceSum", [chances, constant("last", np.array([1]))], "total", keepdims=1)
            score = node("Div", [chances, total], "score")
    index = node("ArgMax", [decided], "index", axis=1, keepdims=0)
    node("Gather", [constant("labels", labels), index], "label", axis=0)
    return [
        helper.make_tensor_value_info("label", kind, ["rows"]),
        helper.make_tensor_value_info(score, TensorProto.DOUBLE, ["rows", len(card.classes)]),
    ]


def _linear(card: Card) -> tuple[str, str]:
    if not kinds.family(card.estimator).linear:
        raise CardError(f"{card.estimator} does not predict by a plain linear rule and cannot be exported")
    return "coef_", "intercept_"
