"""Students as arrays, so that a model file needs no pickle: linear models, trees, forests and boosted trees.

A student is an ordinary model of public rows. What it predicts with is a table of coefficients or of nodes; both are
numbers that a file can hold and a reader can check. `packed` takes them out of scikit-learn's models, and
`ArrayStudent` predicts with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from discreet._checks import Habits
from discreet._typing import Array
from discreet.privacy.page import ShowsPromise
from discreet.privacy.statement import PrivacyStatement
from discreet.tables.reading import column_names, is_frame, to_numbers
from discreet.transfer.aggregation import labels_of

Arrays = Mapping[str, NDArray[Any]]
_LINKS = ("identity", "shares", "sigmoid", "softmax", "votes")
_LARGEST = np.finfo(np.float64).max


class CannotSave(ValueError):
    """A student that arrays cannot hold."""


class ArrayStudent(BaseEstimator):  # type: ignore[misc]
    """A fitted student that predicts with arrays.

    Parameters
    ----------
    arrays : what `packed` gave, or what a file says: everything is checked.
    classes : the labels of a classifier; None for a regressor.
    """

    def __init__(self, arrays: Arrays, classes: NDArray[Any] | None = None) -> None:
        if any(part.dtype.kind not in "bif" for part in arrays.values()):
            raise ValueError("its arrays are not all of numbers")
        self.arrays, self.classes = arrays, classes
        link, self.n_features_in_ = int(arrays["link"]), int(arrays["n_features"])
        if not 0 <= link < len(_LINKS) or (link == 0) != (classes is None):
            raise ValueError("its link is not that of such a student")
        self.link = _LINKS[link]
        if "coef" in arrays:
            coef, intercept = arrays["coef"], arrays["intercept"]
            if coef.ndim != 2 or coef.shape[1] != self.n_features_in_ or intercept.shape != coef.shape[:1]:
                raise ValueError("its coefficients and intercepts do not belong together")
            outputs = len(coef)
        else:
            outputs = _check_trees(arrays, self.n_features_in_)
        if classes is not None:
            places = arrays["places"]
            if (
                places.dtype.kind != "i"
                or np.any(np.diff(places) <= 0)
                or np.any((places < 0) | (places >= len(classes)))
            ):
                raise ValueError("its classes are not among those of the model")
            self.places, self.classes_ = places, classes[places]
            single = self.link in ("sigmoid", "votes") and len(places) == 2
            if outputs != (1 if single else len(places)):
                raise ValueError("its outputs are not one per class")
        elif outputs != 1:
            raise ValueError("it predicts more than one number")

    def __repr__(self) -> str:
        return f"ArrayStudent({'linear' if 'coef' in self.arrays else 'trees'}, {self.link})"

    def raw(self, X: Any) -> Array:
        """Return the raw outputs of each row."""
        rows = to_numbers(X)
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} columns, got an array of shape {rows.shape}")
        if "coef" in self.arrays:
            return np.asarray(rows @ self.arrays["coef"].T + self.arrays["intercept"])
        return _grown(self.arrays, rows)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, or the numbers of a regressor."""
        if self.link == "identity":
            return np.asarray(self.raw(X)[:, 0])
        scores = self._votes(X) if self.link == "votes" else self.predict_proba(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def _votes(self, X: Any) -> Array:
        raw = self.raw(X)
        return np.column_stack([-raw, raw]) if len(self.places) == 2 else raw

    def predict_proba(self, X: Any) -> Array:
        """Return probabilities, one column per label that the student knows; vote shares if it learned votes."""
        raw = self._votes(X) if self.link == "votes" else self.raw(X)
        if self.link == "sigmoid":
            return np.column_stack([expit(-raw), expit(raw)])
        if self.link == "softmax":
            return np.asarray(softmax(raw, axis=1))
        if self.link == "votes":
            raw = np.clip(raw + 1 / len(self.places), 0.0, 1.0)
        total = raw.sum(axis=1, keepdims=True)
        return np.asarray(raw / np.maximum(total, np.finfo(np.float64).tiny))


def _check_trees(arrays: Arrays, n_features: int) -> int:
    """Return the number of outputs; raise unless all children come after their parents, so walks end."""
    feature, left, right, value, root = (
        arrays[name] for name in ("feature", "left", "right", "value", "root")
    )
    size, ahead = len(feature), np.arange(len(feature))
    shapes = {arrays[name].shape for name in ("feature", "threshold", "left", "right", "missing_left")}
    inner = left >= 0
    ordered = (
        (left[inner] > ahead[inner])
        & (right[inner] > ahead[inner])
        & (left[inner] < size)
        & (right[inner] < size)
    )
    if (
        shapes != {(size,)}
        or value.ndim != 2
        or len(value) != size
        or any(part.dtype.kind != "i" for part in (feature, left, right, root))
        or not np.all(ordered)
        or np.any((feature[inner] < 0) | (feature[inner] >= n_features))
        or np.any((root < 0) | (root >= size))
        or arrays["output"].shape != root.shape
        or arrays["base"].ndim != 1
        or int(arrays["divisor"]) < 1
    ):
        raise ValueError("its nodes are not trees")
    outputs = len(arrays["base"])
    if value.shape[1] not in (1, outputs) or np.any((arrays["output"] < 0) | (arrays["output"] >= outputs)):
        raise ValueError("its trees and outputs do not belong together")
    return outputs


def _grown(arrays: Arrays, rows: Array) -> Array:
    """Return means or sums of the leaves that rows fall into; with ``single``, compare rows in single precision."""
    feature, threshold, left, right = (arrays[name] for name in ("feature", "threshold", "left", "right"))
    if bool(arrays["single"]):
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
    found = np.tile(arrays["base"].astype(np.float64), (len(rows), 1))
    every = np.arange(len(rows))
    for root, output in zip(arrays["root"], arrays["output"], strict=True):
        node = np.full(len(rows), root)
        going = every
        while len(going := going[left[node[going]] >= 0]):
            at = node[going]
            cells = rows[going, feature[at]]
            lower = np.where(np.isnan(cells), arrays["missing_left"][at], cells <= threshold[at])
            node[going] = np.where(lower, left[at], right[at])
        leaves = arrays["value"][node]
        if leaves.shape[1] == found.shape[1]:
            found += leaves
        else:
            found[:, output] += leaves[:, 0]
    return found / int(arrays["divisor"])


# -- transfer models as arrays, and back --------------------------------------------------------------------------

_STUDENT = "student_"


class TransferModel(ShowsPromise, Habits, BaseEstimator):  # type: ignore[misc]
    """A model that predicts with a student; the student learns what was released about public rows."""

    student_: Any
    labels_: NDArray[Any]
    votes_: NDArray[np.float64] | None
    n_answered_: int
    classes_: NDArray[Any]
    released_: dict[str, Any]
    privacy_: PrivacyStatement

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the student's predictions."""
        check_is_fitted(self, "student_")
        return np.asarray(self.student_.predict(self._rows(X)))

    def _rows(self, X: Any) -> Any:
        """Rows to predict for; a model that was loaded with its schema reads raw tables."""
        schema, names = getattr(self, "schema_", None), getattr(self, "feature_names_in_", None)
        if schema is not None and (is_frame(X) or isinstance(X, Mapping)):
            return schema.transform(X)
        loaded = isinstance(self.student_, ArrayStudent)
        if loaded and names is not None and is_frame(X) and list(column_names(X)) != list(names):
            raise ValueError("X must have the columns that the model was fitted on, in the same order")
        return X

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was released, and the student that learned from it, as arrays for a model file."""
        classes, votes = getattr(self, "classes_", None), self.released_
        if classes is None:
            released = {"labels_": np.asarray(votes["labels_"], dtype=np.float64)}
        else:
            known = classes.astype(np.str_) if classes.dtype.kind == "O" else classes
            places = {label: place for place, label in enumerate(classes.tolist())}
            codes = [-1 if label is None else places[label] for label in votes["labels_"].tolist()]
            released = {"codes": np.array(codes, dtype=np.int64), "classes": np.asarray(known)}
            if votes["votes_"] is not None:
                released["votes_"] = np.asarray(votes["votes_"], dtype=np.float64)
        return released | {f"{_STUDENT}{name}": part for name, part in packed(self.student_, classes).items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, privacy: PrivacyStatement, **parameters: Any) -> Self:
        """Return a model that predicts, from the arrays of a file; it cannot be fitted without an estimator."""
        student = student_of(arrays)
        model = cls(student, **parameters)
        for name, value in released_of(arrays).items():
            setattr(model, name, value)
        if "classes" in arrays:
            model.classes_ = arrays["classes"]
            model.n_answered_ = int((arrays["codes"] >= 0).sum())
        model.student_, model.privacy_, model.n_features_in_ = student, privacy, student.n_features_in_
        return model


def released_of(arrays: Arrays) -> dict[str, Any]:
    """Return what was released, as in the ledger's digest; the student follows from it and from public rows."""
    if "codes" not in arrays:
        return {"labels_": arrays["labels_"]}
    codes, classes = arrays["codes"], arrays["classes"]
    if codes.dtype.kind != "i" or codes.ndim != 1 or np.any((codes < -1) | (codes >= len(classes))):
        raise ValueError("its labels are not among its classes")
    return {"labels_": labels_of(codes, classes), "votes_": arrays.get("votes_")}


def student_of(arrays: Arrays) -> ArrayStudent:
    """Return the student in the arrays of a transfer model; raise for malformed arrays."""
    own = {name.removeprefix(_STUDENT): part for name, part in arrays.items() if name.startswith(_STUDENT)}
    return ArrayStudent(own, arrays.get("classes"))


# -- out of scikit-learn's models ---------------------------------------------------------------------------------


def packed(student: Any, classes: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Return the arrays of a fitted student; raise `CannotSave` for other kinds.

    classes : the labels of the transfer model; the student may know only some of them. None for a regressor.
    """
    from discreet.transfer.classifier import RegressionStudent

    if isinstance(student, ArrayStudent):
        return dict(student.arrays)
    if isinstance(student, RegressionStudent):
        return _joined([_model(model) for model in student.models]) | _known(
            "votes", student, student.classes_
        )
    arrays = _model(student)
    if classes is None:
        return arrays | {"link": np.array(0)}
    return arrays | _known(_link(student), student, classes)


def _known(link: str, student: Any, classes: NDArray[Any]) -> dict[str, NDArray[Any]]:
    places = np.searchsorted(classes, student.classes_).astype(np.int64)
    return {"link": np.array(_LINKS.index(link)), "places": places}


def _link(student: Any) -> str:
    kind = type(student).__name__
    if kind in ("LogisticRegression", "HistGradientBoostingClassifier"):
        return "sigmoid" if len(student.classes_) == 2 else "softmax"
    return "shares"


def _model(student: Any) -> dict[str, NDArray[Any]]:
    """Return coefficients or nodes of one model of scikit-learn, by its exact class."""
    kind = type(student).__name__
    if not type(student).__module__.startswith("sklearn."):
        kind = ""
    if kind in ("LogisticRegression", "Ridge", "LinearRegression"):
        coef = np.atleast_2d(np.asarray(student.coef_, dtype=np.float64))
        intercept = np.broadcast_to(np.ravel(student.intercept_), len(coef)).astype(np.float64)
        return {"coef": coef, "intercept": intercept, "n_features": np.array(coef.shape[1])}
    if kind in ("DecisionTreeClassifier", "DecisionTreeRegressor"):
        return _forest([student], student)
    if kind.startswith(("RandomForest", "ExtraTrees")):
        return _forest(student.estimators_, student)
    if kind.startswith("HistGradientBoosting"):
        return _boosted(student)
    if kind == "DummyClassifier" and student.strategy == "constant":
        return _trees([], 1, np.ones(1), int(student.n_features_in_), single=False)
    raise CannotSave(
        f"a student of the kind {type(student).__name__} cannot be saved without pickle, which runs what a file says. "
        "Those that can are LogisticRegression, Ridge, LinearRegression, and trees, random forests, extra trees and "
        "HistGradientBoosting of scikit-learn. Training another student on the released labels is free: fit_student"
    )


def _forest(trees: Any, whole: Any) -> dict[str, NDArray[Any]]:
    parts = []
    for one in trees:
        tree = one.tree_
        value = tree.value[:, 0, :].astype(np.float64)
        if hasattr(whole, "classes_"):
            value = value / value.sum(axis=1, keepdims=True)
        if hasattr(tree, "missing_go_to_left"):
            missing = np.asarray(tree.missing_go_to_left, dtype=bool)
        else:
            missing = np.zeros(tree.node_count, dtype=bool)
        parts.append((tree.feature, tree.threshold, tree.children_left, tree.children_right, missing, value))
    outputs = parts[0][-1].shape[1]
    made = _trees(parts, outputs, np.zeros(outputs), int(whole.n_features_in_), single=True)
    return made | {"divisor": np.array(len(trees))}


def _boosted(student: Any) -> dict[str, NDArray[Any]]:
    if getattr(student, "is_categorical_", None) is not None and np.any(student.is_categorical_):
        raise CannotSave(
            "boosted trees that split on categories cannot be saved; encode the columns, as a schema does"
        )
    if type(student).__name__.endswith("Regressor") and student.loss not in (
        "squared_error",
        "absolute_error",
        "quantile",
    ):
        raise CannotSave(f"boosted trees of the loss {student.loss!r} cannot be saved; use squared_error")
    parts, outputs = [], []
    for trees in student._predictors:
        for output, tree in enumerate(trees):
            nodes = tree.nodes
            leaf = nodes["is_leaf"].astype(bool)
            left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
            threshold = np.clip(np.where(leaf, 0.0, nodes["num_threshold"]), -_LARGEST, _LARGEST)
            missing = nodes["missing_go_to_left"].astype(bool)
            value = np.where(leaf, nodes["value"], 0.0)[:, None]
            parts.append((nodes["feature_idx"], threshold, left, right, missing, value))
            outputs.append(output)
    start = np.ravel(student._baseline_prediction).astype(np.float64)
    made = _trees(parts, len(start), start, int(student.n_features_in_), single=False)
    return made | {"output": np.array(outputs, dtype=np.int64)}


def _trees(
    parts: Any, outputs: int, start: Array, n_features: int, *, single: bool
) -> dict[str, NDArray[Any]]:
    """Concatenate the nodes of all trees; children are numbered from the first node of the first tree."""
    sizes = [len(part[0]) for part in parts]
    roots = (
        np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        if sizes
        else np.zeros(0, dtype=np.int64)
    )

    def column(place: int, kind: Any, width: int | None = None) -> NDArray[Any]:
        empty = np.zeros(0 if width is None else (0, width), dtype=kind)
        return np.concatenate([empty, *(np.asarray(part[place], dtype=kind) for part in parts)])

    shift = np.repeat(roots, sizes)
    left, right = (column(place, np.int64) for place in (2, 3))
    return {
        "feature": np.maximum(column(0, np.int64), 0),
        "threshold": column(1, np.float64),
        "left": np.where(left < 0, -1, left + shift),
        "right": np.where(left < 0, -1, right + shift),
        "missing_left": column(4, bool),
        "value": column(5, np.float64, parts[0][5].shape[1] if parts else 1),
        "root": roots,
        "output": np.zeros(len(roots), dtype=np.int64),
        "base": np.asarray(start, dtype=np.float64),
        "n_features": np.array(n_features),
        "single": np.array(single),
        "divisor": np.array(1),
    }


def _joined(parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Join several models of one output each into one of several outputs."""
    first = parts[0]
    if "coef" in first:
        return first | {
            name: np.concatenate([part[name] for part in parts]) for name in ("coef", "intercept")
        }
    before = np.cumsum([0, *(len(part["feature"]) for part in parts)])
    moved = []
    for number, (part, shift) in enumerate(zip(parts, before, strict=False)):
        behind = {side: np.where(part[side] < 0, -1, part[side] + shift) for side in ("left", "right")}
        moved.append(part | behind | {"root": part["root"] + shift, "output": part["output"] + number})
    names = ("feature", "threshold", "left", "right", "missing_left", "value", "root", "output", "base")
    return first | {name: np.concatenate([part[name] for part in moved]) for name in names}
