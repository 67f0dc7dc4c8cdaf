"""Hand a released model to other tools: as a scikit-learn estimator, or as an ONNX graph.

Both are post-processing of released numbers, so the promise of the model goes with them unchanged.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet._files import write_atomically
from discreet.card.card import Card, CardError, family
from discreet.estimators.regressors import range_of_means
from discreet.records.bounds import LARGEST_ENTRY, BoxBounds
from discreet.tables.domains import MISSING_WORDS, Binned, Boolean, Categorical, Numeric, cell_text

if TYPE_CHECKING:
    from discreet.additive.shapes import PairShape, Shape

_OPSET, _TEXTS_OPSET = 17, 2
_OUTPUTS = "label", "score", "prediction"


def to_sklearn(model: Any) -> Any:
    """Return a plain scikit-learn estimator with the same coefficients.

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
    if _is_additive(card):
        raise CardError("scikit-learn has no additive models of bins; to_onnx exports them")
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
    """Write an ONNX graph of a linear or additive model that predicts as the model does, clipping included.

    Input ``X`` (float64, rows x features). An additive model of a table has one input per column instead, of shape
    (rows,): numbers and intervals as float64, NaN where missing; categories as texts, spelled as in the schema and
    empty where missing; booleans as 1.0, 0.0, or NaN where missing. A classifier has the outputs ``label`` and
    ``score`` (probabilities of a logistic or additive model, decision values otherwise), a regressor the output
    ``prediction``. Needs the extra ``onnx``.
    """
    card, graph = Card.of(model), _Graph()
    onnx, helper = graph.onnx, graph.onnx.helper
    outputs = _additive_outputs(graph, card) if _is_additive(card) else _linear_outputs(graph, card)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _TEXTS_OPSET)]
    made = helper.make_model(
        graph.made(card, outputs), opset_imports=opsets[: 1 + graph.reads_texts], producer_name="discreet"
    )
    made.ir_version = min(made.ir_version, 8)  # what opset 17 needs: older runtimes read it too
    onnx.checker.check_model(made)
    write_atomically(path, made.SerializeToString())


class _Graph:
    """The inputs, constants and nodes of a graph. Names of its own begin with a slash, those of inputs are free."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise ImportError("ONNX export needs the package onnx: pip install 'discreet[onnx]'") from None
        self.onnx: Any = onnx
        self.kinds = onnx.TensorProto
        self._inputs: list[Any] = []
        self._constants: list[Any] = []
        self._nodes: list[Any] = []
        self.reads_texts = False

    def _unused(self) -> str:
        return f"/{len(self._constants) + len(self._nodes)}"

    def input(self, name: str, kind: int, *shape: int | str) -> str:
        """Add an input."""
        self._inputs.append(self.output(name, kind, *shape))
        return name

    def output(self, name: str, kind: int, *shape: int | str) -> Any:
        """Describe an output."""
        return self.onnx.helper.make_tensor_value_info(name, kind, list(shape))

    def constant(self, value: Any) -> str:
        """Add a number or an array."""
        name = self._unused()
        self._constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Apply an operator, and return the name of its result."""
        name = self._unused() if output is None else output
        self._nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def codes_of_texts(self, texts: str, codes: dict[str, int], other: int) -> str:
        """Replace texts by whole numbers."""
        self.reads_texts = True
        known: dict[str, Any] = {
            "keys_strings": list(codes),
            "values_int64s": list(codes.values()),
            "default_int64": other,
        }
        return self.node("LabelEncoder", texts, domain="ai.onnx.ml", **known)

    def made(self, card: Card, outputs: list[Any]) -> Any:
        """Return the graph."""
        return self.onnx.helper.make_graph(
            self._nodes, card.estimator, self._inputs, outputs, self._constants, doc_string=str(card.privacy)
        )


# -- linear models -----------------------------------------------------------------------------------------------------


def _linear_outputs(graph: _Graph, card: Card) -> list[Any]:
    """Shrink rows, multiply, decide."""
    node, constant = graph.node, graph.constant
    names = _linear(card)
    rows = graph.input("X", graph.kinds.DOUBLE, "rows", card.n_features)
    coef = np.atleast_2d(card.arrays[names[0]])
    intercept = np.atleast_1d(card.arrays[names[1]])
    middle = 0.0 if card.classes is not None else float(np.mean(card.parameters["target_bounds"]))
    intercepted = bool(card.parameters["fit_intercept"])
    bound = constant([[float(card.parameters["feature_bound"])]])
    sizes = node("ReduceMax", node("Abs", rows), axes=[1], keepdims=1)
    scale = None
    if "l1_radius" in card.parameters:  # entries are clipped one by one
        most = float(card.parameters["feature_bound"])
        rows = node("Clip", rows, constant(-most), constant(most))
    elif isinstance(card.row_bounds, BoxBounds):
        bound = constant([[1.0]])
        scale = node("Div", bound, node("Max", sizes, bound))
    else:
        squares = node("ReduceSumSquare", rows, axes=[1], keepdims=1)
        if intercepted:
            squares = node("Add", squares, constant([[1.0]]))
        scale = node("Div", bound, node("Max", node("Sqrt", squares), bound))
    raw = node("MatMul", rows, constant(coef.T.copy()))
    raw = node("Add", raw, constant(intercept[None, :] - middle))
    if scale is not None:
        # A row beyond what a fit takes for a record counts as none.
        usual = node("LessOrEqual", sizes, constant([[LARGEST_ENTRY]]))
        raw = node("Mul", raw, node("Where", usual, scale, constant([[0.0]])))
    if card.classes is None:
        low, high = card.parameters["target_bounds"]
        raw = node("Add", raw, constant([[middle]]))
        return _prediction(graph, node("Clip", raw, constant(float(low)), constant(float(high))))
    kind = "raw" if not family(card.estimator).probabilities else card.facts.get("multi_class_")
    return _decide(graph, card, raw, str(kind))


def _linear(card: Card) -> tuple[str, str]:
    if not family(card.estimator).linear:
        raise CardError(f"{card.estimator} does not predict by a plain linear rule and cannot be exported")
    return "coef_", "intercept_"


# -- additive models ---------------------------------------------------------------------------------------------------


def _is_additive(card: Card) -> bool:
    return card.estimator.startswith("PrivateAdditive")


def _additive_outputs(graph: _Graph, card: Card) -> list[Any]:
    """Find the bin of every cell, add up the shapes in their order, decide."""
    from discreet.additive.shapes import AdditiveModel

    node, constant = graph.node, graph.constant
    model = AdditiveModel.from_arrays(card.arrays)
    taken = {shape.name for shape in model.shapes} & set(_OUTPUTS)
    if taken and card.arrays["reads_tables"]:
        raise CardError(f"a graph has outputs of that name, rename the columns {sorted(taken)} to export it")
    if card.arrays["reads_tables"]:
        cells = [_table_cells(graph, shape) for shape in model.shapes]
    else:
        rows = graph.input("X", graph.kinds.DOUBLE, "rows", len(model.shapes))
        cells = [
            node("Gather", rows, constant(np.int64(place)), axis=1) for place in range(len(model.shapes))
        ]
    codes = [_code(graph, shape, cell) for shape, cell in zip(model.shapes, cells, strict=True)]
    raw = constant(model.intercept[None, :])
    for shape, code in zip(model.shapes, codes, strict=True):
        table = np.vstack([shape.values, shape.missing])
        raw = node("Add", raw, node("Gather", constant(table), code, axis=0))
    for pair in model.pairs:
        table = np.vstack(
            [pair.values.reshape(-1, len(model.intercept)), np.zeros((1, len(model.intercept)))]
        )
        raw = node("Add", raw, node("Gather", constant(table), _pair_code(graph, pair, codes), axis=0))
    if card.classes is not None:
        return _decide(graph, card, raw, "softmax")
    middle, half_width = np.asarray(card.arrays["target_range"]).tolist()
    if card.parameters.get("loss", "squared") == "poisson":
        least, most = range_of_means(middle, half_width, card.parameters.get("least_mean"))
        log = node("Clip", raw, constant(float(np.log(least))), constant(float(np.log(most))))
        return _prediction(graph, node("Exp", log))
    return _prediction(graph, node("Clip", raw, constant(middle - half_width), constant(middle + half_width)))


def _table_cells(graph: _Graph, shape: Shape) -> str:
    """Add the input of one column."""
    texts = isinstance(shape.column.domain, Categorical)
    return graph.input(shape.name, graph.kinds.STRING if texts else graph.kinds.DOUBLE, "rows")


def _code(graph: _Graph, shape: Shape, cells: str) -> str:
    """Find the place of every cell in the table of its column's shape; -1 where it is missing and has no bin."""
    node, constant, bins, domain = graph.node, graph.constant, shape.bins, shape.column.domain
    if isinstance(domain, Categorical):
        codes = {str(cell_text(one)): int(bins.places[place]) for place, one in enumerate(domain.categories)}
        if domain.unknown != "bucket":
            return graph.codes_of_texts(cells, codes, -1)
        words = {form for word in MISSING_WORDS for form in (word, word.upper(), word.title(), "NaN")}
        codes = dict.fromkeys(words, -1) | codes
        return graph.codes_of_texts(cells, codes, int(bins.places[-1]))
    missing = node("IsNaN", cells)
    if isinstance(domain, Numeric) and domain.default is not None and not bins.missing:
        cells = node("Where", missing, constant(float(domain.default)), cells)
        missing = node("IsNaN", cells)
    if isinstance(domain, Boolean):
        edges = np.array([0.5])
    else:
        edges = np.asarray(domain.edges) if isinstance(domain, Binned) else bins.edges
    above = node(
        "GreaterOrEqual", node("Unsqueeze", cells, constant(np.array([1]))), constant(edges[None, :])
    )
    code = node("ReduceSum", node("Cast", above, to=7), constant(np.array([1])), keepdims=0)  # 7: int64
    if len(bins.places):
        code = node("Gather", constant(bins.places), code, axis=0)
    return node("Where", missing, constant(np.int64(bins.n_bins if bins.missing else -1)), code)


def _pair_code(graph: _Graph, pair: PairShape, codes: list[str]) -> str:
    """Find the place of every record in the table of two columns; -1 where a cell is missing."""
    node, constant = graph.node, graph.constant
    first, second = (
        node("Gather", constant(np.append(table, -1)), codes[place], axis=0)
        for place, table in zip(pair.columns, pair.coarse, strict=True)
    )
    width = constant(np.int64(pair.values.shape[1]))
    zero = constant(np.int64(0))
    known = node("And", node("GreaterOrEqual", first, zero), node("GreaterOrEqual", second, zero))
    return node("Where", known, node("Add", node("Mul", first, width), second), constant(np.int64(-1)))


# -- what both predict -------------------------------------------------------------------------------------------------


def _prediction(graph: _Graph, raw: str) -> list[Any]:
    """Make the output of a regressor."""
    graph.node("Reshape", raw, graph.constant(np.array([-1])), output="prediction")
    return [graph.output("prediction", graph.kinds.DOUBLE, "rows")]


def _decide(graph: _Graph, card: Card, raw: str, scores: str) -> list[Any]:
    """Make the labels and scores of a classifier; ``scores`` are "raw", of one "softmax", or of one model per class."""
    assert card.classes is not None
    node, constant = graph.node, graph.constant
    text = card.classes.dtype.kind == "U"
    labels = card.classes.astype(object) if text else card.classes
    if labels.dtype == bool:
        labels = labels.astype(np.int64)
    kind = graph.kinds.STRING if text else graph.onnx.helper.np_dtype_to_tensor_dtype(labels.dtype)
    decided = raw
    if len(card.classes) == 2:
        decided = node("Concat", node("Neg", raw), raw, axis=1)
        if scores == "raw":
            node("Identity", decided, output="score")
        else:
            positive = node("Sigmoid", raw)
            node("Concat", node("Sub", constant([[1.0]]), positive), positive, output="score", axis=1)
    elif scores == "raw":
        node("Identity", raw, output="score")
    elif scores == "softmax":
        node("Softmax", raw, output="score", axis=1)
    else:
        chances = node("Sigmoid", raw)
        total = node("ReduceSum", chances, constant(np.array([1])), keepdims=1)
        node("Div", chances, total, output="score")
    index = node("ArgMax", decided, axis=1, keepdims=0)
    node("Gather", constant(labels), index, output="label", axis=0)
    scored = graph.output("score", graph.kinds.DOUBLE, "rows", len(card.classes))
    return [graph.output("label", kind, "rows"), scored]
