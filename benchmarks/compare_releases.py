"""Compare every price, plan and release of two versions of the library, under fixed test noise.

    python -m benchmarks.compare_releases --write before.json
    python -m benchmarks.compare_releases --against before.json

Every cell (a solver, loss, set and relation, or one public estimator or function on one kind of table) draws its noise
from a key made of the cell's name. A cell records the event that is charged, every number of the plan and of the
statement, the words of both, and a digest of every released array, or the kind of refusal. ``--against`` runs the same
cells again and reports how many are equal, which numbers differ, and which words do. Numbers must not differ; a field
may move or be renamed as long as its value is still there.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import hashlib
import inspect
import json
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_limits

# Where names live: the first module that exists and has the name. Older layouts come last.
HOMES = {
    "Entropy": ("discreet.mechanisms.samplers.entropy", "discreet.mechanisms.entropy"),
    "sets": ("discreet.sets", "discreet.geometries"),
    "losses": ("discreet.losses",),
    "Bounds": ("discreet.records.bounds", "discreet.bounds"),
    "Problem": ("discreet.problem",),
    "ArrayRecords": ("discreet.records.arrays",),
    "PartitionedRecords": ("discreet.records.partitioned", "discreet.records.parts"),
    "LocalParts": ("discreet.records.partitioned", "discreet.records.parts"),
    "solvers": ("discreet.solvers.base",),
    "MedianDescent": ("discreet.solvers.median", "discreet.solvers.geometric_median"),
    "METHODS": ("discreet.recommend.methods", "discreet.recommend.methods.registry"),
    "IMPLICIT": (
        "discreet.recommend.methods.clicks",
        "discreet.recommend.methods",
        "discreet.recommend.clicks",
    ),
    "subsample_and_aggregate": (
        "discreet.transfer",
        "discreet.transfer.aggregation",
        "discreet.transfer.subsample",
    ),
}
KINDS = ("dense", "csr", "parts", "float32")
RELATIONS = ("replace-one", "add-remove-one", "zero-out")
N, P = 80, 4
LABEL_BOUND = 2.0
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
Record = dict[str, Any]


def found(name: str) -> Any:
    """The object or, for a lower-case name of a package, the module with this name."""
    for home in HOMES[name]:
        with contextlib.suppress(ModuleNotFoundError):
            module = import_module(home)
            if name in ("sets", "losses", "solvers"):
                return module
            if hasattr(module, name):
                return getattr(module, name)
    raise ImportError(f"{name} is in none of {HOMES[name]}")


def public(name: str) -> Any:
    """A public name of the library."""
    return getattr(import_module("discreet"), name)


@contextlib.contextmanager
def noise_of(cell: str) -> Iterator[None]:
    """All sources of noise made in this block have one key: the order in which they are made is no difference."""
    source = found("Entropy")
    genuine, key = source._key, hashlib.sha512(cell.encode()).digest()[:48]
    source._key = lambda self: key
    try:
        yield
    finally:
        source._key = genuine


# -- what is recorded ------------------------------------------------------------------------------------------


def numbers(value: Any, path: str = "", seen: frozenset[int] = frozenset()) -> dict[str, str]:
    """Every number below ``value`` by its path; arrays as digests of their bytes."""
    if isinstance(value, bool | np.bool_) or value is None or isinstance(value, str | bytes | type):
        return {}
    if isinstance(value, enum.Enum):
        return {}
    if isinstance(value, int | np.integer):
        return {path: str(int(value))}
    if isinstance(value, float | np.floating):
        return {path: float(value).hex()}
    if isinstance(value, Fraction):
        return {path: str(value)}
    if sp.issparse(value):
        value = np.asarray(value.todense())  # type: ignore[attr-defined]
    if isinstance(value, np.ndarray):
        return {path: digest(value)}
    if isinstance(value, pd.DataFrame | pd.Series):
        return {path: digest(value.to_numpy())}
    if id(value) in seen or len(seen) > 8:
        return {}
    seen = seen | {id(value)}
    if isinstance(value, Mapping):
        parts = [(str(name), part) for name, part in value.items()]
    elif isinstance(value, tuple | list):
        parts = [(str(place), part) for place, part in enumerate(value)]
    elif dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        return {}
    below: dict[str, str] = {}
    for name, part in parts:
        below |= numbers(part, f"{path}.{name}" if path else name, seen)
    return below


def digest(array: np.ndarray[Any, Any]) -> str:
    """Shape, a digest of all bytes, and the first numbers to see how far apart two arrays are."""
    if array.dtype == object:
        data = repr(array.tolist()).encode()
        first = ""
    else:
        data = np.ascontiguousarray(array).tobytes()
        first = " ".join(str(entry) for entry in array.ravel()[:3])
    return f"{array.dtype} {array.shape} {hashlib.sha256(data).hexdigest()[:24]} {first}"


def plan_record(plan: Any) -> Record:
    """What a plan says."""
    noise = getattr(plan, "noise", {})
    return {
        "event": plan.event.to_dict(),
        "noise": _noise(noise),
        "plan": numbers(plan),
        "words": {
            "plan": str(plan),
            "mechanism": getattr(plan, "mechanism", ""),
            "theorem": getattr(plan, "theorem", ""),
            "noise": " | ".join(map(str, noise)),
        },
    }


def statement_record(statement: Any) -> Record:
    """What a statement says."""
    said = statement.to_dict()
    return {
        "event": said["event"],
        "noise": _noise(said["noise"]),
        "guarantee": numbers(said["guarantee"]) | {"relation": said["neighboring"]},
        "bounds": _noise(said["bounds"]),
        "words": {
            name: json.dumps(said[name])
            for name in ("mechanism", "theorem", "noise", "bounds", "assumptions", "not_covered")
        },
    }


def _noise(noise: Mapping[str, Any]) -> list[str]:
    return [float(value).hex() for value in noise.values() if not isinstance(value, str)]


def released(model: Any) -> dict[str, str]:
    """Fitted attributes of a model, as far as they are numbers."""
    attributes = {
        name: value
        for name, value in vars(model).items()
        if name.endswith("_") and not name.startswith("_") and name not in ("privacy_", "fitted_parameters_")
    }
    return numbers(attributes)


def unhurried(solver: Any) -> Any:
    """The same solver without a pause that hides how long it took."""
    return dataclasses.replace(solver, clock=False) if hasattr(solver, "clock") else solver


def attempt(cell: str, work: Callable[[], Record]) -> Record:
    """What became of a cell: its record or its refusal."""
    try:
        with noise_of(cell), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except Exception as error:
        if not isinstance(
            error, ValueError | TypeError
        ):  # no refusal: a fault of the library or of this script
            print(f"{cell}: {type(error).__name__}: {error}", flush=True)
        return {"refused": type(error).__name__, "words": {"refusal": str(error)}}


# -- solvers ---------------------------------------------------------------------------------------------------


def all_losses() -> dict[str, Any]:
    """One of each loss that this version has."""
    module = found("losses")
    arguments: dict[str, tuple[str, tuple[Any, ...]]] = {
        "logistic": ("Logistic", ()),
        "softmax": ("Softmax", (3,)),
        "huber-hinge": ("HuberHinge", (0.5,)),
        "hinge": ("Hinge", ()),
        "squared": ("Squared", (LABEL_BOUND, 5.0)),
        "huber": ("HuberRegression", (1.0,)),
        "quantile": ("Quantile", (0.5, 0.1)),
        "poisson": ("Poisson", (1.0, LABEL_BOUND)),
        "linear": ("Linear", (LABEL_BOUND,)),
    }
    return {
        name: getattr(module, kind)(*values)
        for name, (kind, values) in arguments.items()
        if hasattr(module, kind)
    }


def all_sets(n_outputs: int) -> dict[str, Any]:
    """No set, and one of each kind of set for models of so many outputs."""
    sets, p = found("sets"), P * n_outputs
    return {
        "none": None,
        "l2-ball": sets.L2Ball(2.0, p),
        "l1-ball": sets.L1Ball(2.0, p),
        "simplex": sets.Simplex(2.0, p),
        "box": sets.Box((-1.0,) * p, (1.0,) * p),
        "grouped-l1": sets.GroupedL1Ball(2.0, p, 2),
        "interpolation": sets.InterpolationBall(2.0, p, 0.5),
        "nuclear": sets.NuclearBall(2.0, (P, n_outputs) if n_outputs > 1 else (2, P // 2)),
        "vertices": sets.VertexPolytope(np.vstack([np.eye(p), -np.eye(p)])),
        "ball-part": sets.BallIntersection(sets.L1Ball(2.0, p), (0.3,) + (0.0,) * (p - 1), 1.0),
    }


def labels_for(loss: str, n: int, seed: int = 0) -> Any:
    """Labels that the loss accepts."""
    rng = np.random.default_rng(seed)
    if loss == "softmax":
        return rng.integers(0, 3, n)
    if loss in ("logistic", "huber-hinge", "hinge"):
        return np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return rng.uniform(0.0 if loss == "poisson" else -LABEL_BOUND, LABEL_BOUND, n)


def containers(rows: Any, y: Any, bounds: Any) -> dict[str, Any]:
    """The same records in every kind of memory."""
    arrays = found("ArrayRecords")
    parts = [arrays(rows[k : k + 30], y[k : k + 30], bounds) for k in range(0, len(y), 30)]
    sizes = tuple(part.n_samples for part in parts)
    return {
        "dense": lambda: arrays(rows, y, bounds),
        "csr": lambda: arrays(sp.csr_array(rows), y, bounds),
        "float32": lambda: arrays(rows.astype(np.float32), y, bounds),
        "parts": lambda: found("PartitionedRecords")(
            found("LocalParts")(parts), sizes, rows.shape[1], False, bounds, y
        ),
    }


#: Settings other than the default ones, where a solver then does something else.
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("noisy-gd", {"level_rows": False, "n_iterations": 20}),
    ("noisy-gd", {"level_rows": True, "n_iterations": 20}),
    ("noisy-gd", {"center_share": 0.2, "n_iterations": 20}),
    ("noisy-gd", {"schedule": "decreasing", "n_iterations": 20}),
    ("noisy-gd", {"momentum": 0.5, "radius": 2.0, "cap": 0.4, "averaging": 0.5, "n_iterations": 20}),
    ("noisy-sgd", {"sampling_rate": 0.3, "n_iterations": 20, "schedule": "decreasing"}),
    ("newton", {"n_iterations": 2, "ordered_columns": True}),
    ("newton", {"n_iterations": 3, "moment_share": 0.3, "radius": 2.0, "cap": 0.4, "clip": 0.8}),
    ("discriminant", {"n_iterations": 2, "sums_share": 0.4, "cap": 0.5}),
    ("discriminant", {"n_iterations": 1}),
    ("frank-wolfe", {"choice": "gradient", "n_iterations": 10}),
    ("frank-wolfe", {"choice": "vertices", "n_iterations": 10}),
    ("frank-wolfe", {"choice": "vertex", "n_iterations": 10}),
    ("frank-wolfe", {"weights": "line", "n_iterations": 10}),
    ("frank-wolfe", {"weights": "growing", "n_iterations": 10}),
    ("mirror-descent", {"n_iterations": 10, "learning_rate": 0.1}),
    ("simplex-sampling", {"n_draws": 5, "entropy_weight": 0.5}),
    ("statistics", {"ridge_per_noise": 0.5, "prior_precision": 2.0}),
    ("objective", {"prediction_noise": 0.5}),
    ("output", {"prediction_noise": 0.5}),
    ("localized", {"prediction_noise": 0.5}),
    ("exponential", {"method": "rejection", "radius": 1.0}),
    ("exponential", {"structured": True}),
    ("psgd", {"n_passes": 2, "batch_size": 5}),
)


def solver_cells(every: int, full: bool) -> Iterator[tuple[str, Callable[[], Record]]]:
    """Every solver on every loss, set and relation: all are planned, half are run on one kind of table each.

    ``full`` runs all on all kinds of tables. ``every`` > 1 leaves out the others.
    """
    base = found("solvers")
    rows = np.random.default_rng(0).normal(size=(N, P))
    turns = {0: "dense", 1: "dense", 2: "csr", 3: "parts", 4: "float32"}
    for delta in (1e-4, 0.0):
        for loss_name, loss in all_losses().items():
            for set_name, inside in all_sets(loss.n_outputs).items():
                for relation in RELATIONS:
                    for solver in base.names():
                        cell = f"solver/{solver}/{loss_name}/{set_name}/{relation}/{delta:g}"
                        lot = int(hashlib.sha256(cell.encode()).hexdigest(), 16)  # the same in every version
                        if lot % every:
                            continue
                        one = turns.get(lot // every % 10)
                        kinds = KINDS if full else () if one is None else (one,)
                        yield (
                            cell,
                            _solving(
                                base.resolve(solver), loss_name, loss, inside, relation, delta, rows, kinds
                            ),
                        )
    for solver, settings in SETTINGS:
        kind = type(base.resolve(solver))
        for loss_name, loss in all_losses().items():
            for set_name in ("none", "l1-ball"):
                cell = f"settings/{solver}/{json.dumps(settings)}/{loss_name}/{set_name}"
                inside = all_sets(loss.n_outputs)[set_name]
                yield cell, _set_up(kind, settings, loss_name, loss, inside, rows)
    for n_models in (1, 3):
        for solver in base.names():
            loss = all_losses()["logistic"]
            cell = f"several/{solver}/{n_models}"
            yield (
                cell,
                _solving(
                    base.resolve(solver),
                    "logistic",
                    loss,
                    None,
                    "zero-out",
                    1e-4,
                    rows,
                    ("dense", "csr", "parts"),
                    n_models,
                ),
            )


def _set_up(
    kind: Any, settings: dict[str, Any], loss_name: str, loss: Any, inside: Any, rows: Any
) -> Callable[[], Record]:
    def work() -> Record:
        return _solving(
            kind(**settings), loss_name, loss, inside, "replace-one", 1e-4, rows, ("dense", "csr", "parts")
        )()

    return work


def _solving(
    solver: Any,
    loss_name: str,
    loss: Any,
    inside: Any,
    relation: str,
    delta: float,
    rows: Any,
    kinds: tuple[str, ...],
    n_models: int = 1,
) -> Callable[[], Record]:
    real = loss_name in ("squared", "huber", "quantile", "poisson", "linear")

    def work() -> Record:
        bounds = found("Bounds")(1.0, False)
        problem = found("Problem")(loss, bounds, N, P, n_models, None, inside, LABEL_BOUND if real else None)
        plan = unhurried(solver).plan(problem, public("Guarantee")(1.0, delta, relation))
        record = plan_record(plan)
        record["released"] = {}
        for name in kinds:
            lists = [
                containers(rows, labels_for(loss_name, N, seed), bounds)[name]() for seed in range(n_models)
            ]
            try:
                theta = plan.run(lists, found("Entropy")()).theta
                record["released"][name] = digest(theta)
            except Exception:  # of a solver that needs single rows, on parts; fits refuse this before
                record["released"][name] = "error"
        return record

    return work


# -- everything public -----------------------------------------------------------------------------------------


def tables(
    frame: pd.DataFrame, target: str, folder: Path
) -> dict[str, Callable[[], tuple[Any, dict[str, Any]]]]:
    """Arguments of ``fit`` for the same rows in every kind of table."""
    X, y = frame.drop(columns=target), frame[target].to_numpy()
    path = folder / f"{target}.parquet"
    if not path.exists():
        frame.to_parquet(path)

    def dask() -> tuple[Any, dict[str, Any]]:
        import dask.array as da

        return (da.from_array(X.to_numpy(), chunks=(150, 2)), da.from_array(y, chunks=150)), {}

    return {
        "dense": lambda: ((X.to_numpy(), y), {}),
        "float32": lambda: ((X.to_numpy().astype(np.float32), y), {}),
        "csr": lambda: ((sp.csr_matrix(X.to_numpy()), y), {}),
        "frame": lambda: ((X, y), {}),
        "parquet": lambda: ((path,), {"target": target}),
        "dask": dask,
    }


def made(n: int = 500, seed: int = 0) -> dict[str, pd.DataFrame]:
    """A table of three columns with targets of every kind."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    raw = X @ [1.0, -2.0, 0.5]
    columns = {f"x{k}": X[:, k] for k in range(3)}
    targets = {
        "binary": (raw + rng.normal(size=n) > 0).astype(int),
        "three": np.digitize(raw, [-1.0, 1.0]),
        "real": np.clip(raw / 3, -1.0, 1.0),
        "count": rng.poisson(np.exp(raw / 4)).clip(0, 9).astype(float),
    }
    return {name: pd.DataFrame(columns | {name: target}) for name, target in targets.items()}


def estimators() -> dict[str, tuple[str, dict[str, Any], str]]:
    """Public linear estimators with settings and the target they learn."""
    sets = found("sets")
    both = {"classes": [0, 1]}
    kinds: dict[str, tuple[str, dict[str, Any], str]] = {
        "logistic": ("PrivateLogisticRegression", both, "binary"),
        "logistic-three": ("PrivateLogisticRegression", {"classes": [0, 1, 2]}, "three"),
        "logistic-ovr": ("PrivateLogisticRegression", {"classes": [0, 1, 2], "multi_class": "ovr"}, "three"),
        "logistic-l2": ("PrivateLogisticRegression", both | {"l2": 0.1, "fit_intercept": False}, "binary"),
        "logistic-set": ("PrivateLogisticRegression", both | {"constraint": sets.L2Ball(2.0, 4)}, "binary"),
        "svc": ("PrivateLinearSVC", both, "binary"),
        "svc-three": ("PrivateLinearSVC", {"classes": [0, 1, 2]}, "three"),
        "ridge": ("PrivateRidge", {"target_bounds": (-1.0, 1.0)}, "real"),
        "ridge-set": ("PrivateRidge", {"target_bounds": (-1.0, 1.0), "constraint": sets.L1Ball(2.0, 4),
                                      "solver": "frank-wolfe"}, "real"),
        "least-squares": ("PrivateLinearRegression", {"target_bounds": (-1.0, 1.0)}, "real"),
        "huber": ("PrivateHuberRegressor", {"target_bounds": (-1.0, 1.0)}, "real"),
        "quantile": ("PrivateQuantileRegressor", {"target_bounds": (-1.0, 1.0)}, "real"),
        "poisson": ("PrivatePoissonRegressor", {"target_bounds": (0.0, 9.0)}, "count"),
        "lasso": ("PrivateLasso", {"target_bounds": (-1.0, 1.0)}, "real"),
        "sparse-logistic": ("PrivateSparseLogisticRegression", both, "binary"),
        "simplex-regressor": ("PrivateSimplexRegressor", {"target_bounds": (-1.0, 1.0)}, "real"),
        "simplex-classifier": ("PrivateSimplexClassifier", both, "binary"),
    }  # fmt: skip
    for solver in found("solvers").names():
        kinds[f"logistic-by-{solver}"] = ("PrivateLogisticRegression", both | {"solver": solver}, "binary")
    return kinds


def fitted_record(model: Any, probe: Any = None) -> Record:
    """Statement and released numbers of a fitted model, and its predictions."""
    record = statement_record(model.privacy_)
    record["released"] = released(model)
    if probe is not None:
        for method in ("predict", "predict_proba", "decision_function"):
            if hasattr(model, method):
                record["released"][method] = digest(np.asarray(getattr(model, method)(probe)))
    return record


def estimator_cells(folder: Path) -> Iterator[tuple[str, Callable[[], Record]]]:
    """Every linear estimator on every kind of table, relation, and with groups."""
    data = made()
    for label, (kind, settings, target) in estimators().items():
        frame = data[target]
        kinds = tables(frame, target, folder)
        by_solver = "-by-" in label
        for relation in RELATIONS:
            size = {"n_samples": 600} if relation == "add-remove-one" else {}
            model = settings | size | {"neighboring": relation}
            yield f"plan/{label}/{relation}", _planning(kind, model, 2 + (target == "three"))
            for table in ("dense",) if by_solver and relation != "replace-one" else kinds:
                yield f"fit/{label}/{relation}/{table}", _fitting(kind, model, kinds[table], frame)
            grouped = model | {"max_rows_per_group": 3} | ({"n_samples": 700} if size else {})
            yield f"group-plan/{label}/{relation}", _planning(kind, grouped, 2 + (target == "three"))
            yield f"groups/{label}/{relation}", _fitting(kind, grouped, kinds["dense"], frame, by_person=True)
        if not by_solver:
            yield (
                f"null/{label}",
                _fitting(kind, settings | {"bad_rows": "null"}, kinds["frame"], frame, broken=True),
            )
            yield f"pure/{label}", _fitting(kind, settings | {"delta": 0.0}, kinds["dense"], frame)


def _planning(kind: str, settings: dict[str, Any], n_classes: int) -> Callable[[], Record]:
    def work() -> Record:
        model = public(kind)(**settings)
        more = {"n_classes": n_classes} if "n_classes" in inspect.signature(model.plan).parameters else {}
        return plan_record(model.plan(5000, 3, **more))

    return work


def _fitting(
    kind: str,
    settings: dict[str, Any],
    table: Callable[[], tuple[Any, dict[str, Any]]],
    frame: pd.DataFrame,
    by_person: bool = False,
    broken: bool = False,
) -> Callable[[], Record]:
    def work() -> Record:
        arguments, options = table()
        if by_person:
            options = options | {"groups": np.arange(len(frame)) // 2}
        if broken:
            X = arguments[0].copy()
            X.iloc[[3, 77], 1] = np.nan
            arguments = (X, *arguments[1:])
        model = public(kind)(**settings).fit(*arguments, **options)
        return fitted_record(model, frame[["x0", "x1", "x2"]].to_numpy()[:50])

    return work


def other_cells(folder: Path) -> Iterator[tuple[str, Callable[[], Record]]]:
    """Median, transfer, recommenders, search, evaluation, intervals, quantiles and streams."""
    data = made()
    frame = data["binary"]
    X, y = frame[["x0", "x1", "x2"]].to_numpy(), frame["binary"].to_numpy()
    real = data["real"]["real"].to_numpy()
    teacher = GaussianNB()
    people = np.arange(len(y)) // 2

    def fit(name: str, *arguments: Any, on: tuple[Any, ...], **options: Any) -> Callable[[], Record]:
        data_options = {key: options.pop(key) for key in ("groups",) if key in options}
        return lambda: fitted_record(public(name)(*arguments, **options).fit(*on, **data_options))

    for relation in RELATIONS:
        size = {"n_samples": 700} if relation == "add-remove-one" else {}
        shared = {"neighboring": relation} | size
        yield f"median/{relation}", fit("PrivateMedian", on=(X,), radius=3.0, **shared)
        yield (
            f"median/groups/{relation}",
            fit("PrivateMedian", on=(X,), radius=3.0, max_rows_per_group=2, groups=people, **shared),
        )
        yield (
            f"median/plan/{relation}",
            lambda shared=shared: plan_record(  # type: ignore[misc]
                public("PrivateMedian")(radius=3.0, **shared).plan(400, 3)
            ),
        )
        for aggregator in ("auto", "shares", "sparse-vector", "plurality", "confident"):
            yield f"transfer/{aggregator}/{relation}", fit(
                "PrivateTransferClassifier", teacher, LogisticRegression(), 20, 2.0, 1e-5, aggregator,
                classes=[0, 1], on=(X, y, X[:40]), **shared,
            )  # fmt: skip
            yield f"transfer/groups/{aggregator}/{relation}", fit(
                "PrivateTransferClassifier", teacher, LogisticRegression(), 20, 2.0, 1e-5, aggregator,
                classes=[0, 1], on=(X, y, X[:40]), groups=people, **shared,
            )  # fmt: skip
        yield f"transfer/regression/{relation}", fit(
            "PrivateTransferRegressor", Ridge(), (-1.0, 1.0), LinearRegression(), 20, 2.0, 1e-5,
            on=(X, real, X[:40]), **shared,
        )  # fmt: skip
        yield f"labeler/{relation}", lambda shared=shared: _labeled(teacher, X, y, shared)  # type: ignore[misc]
        yield f"error-rate/{relation}", lambda relation=relation: _error_rate(teacher, X, y, relation)  # type: ignore[misc]
        yield f"agreement/{relation}", lambda relation=relation: _agreement(X, relation)  # type: ignore[misc]
        yield f"quantiles/{relation}", lambda relation=relation: _quantiles(X, people, relation)  # type: ignore[misc]
        yield (
            f"norm-bound/{relation}",
            lambda relation=relation: _result(  # type: ignore[misc]
                public("private_norm_bound")(X, epsilon=1.0, neighboring=relation)
            ),
        )
        yield f"domains/{relation}", lambda relation=relation: _domains(frame, relation)  # type: ignore[misc]
        for task, model, target in (
            ("classes", LogisticRegression().fit(X, y), y),
            ("reals", LinearRegression().fit(X, real), real),
        ):
            for delta in (None, 0.0):
                yield (
                    f"evaluate/{task}/{relation}/{delta}",
                    lambda m=model, t=target, d=delta, s=shared: _evaluated(  # type: ignore[misc]
                        m, X, t, d, s
                    ),
                )
        yield f"stream/linear/{relation}", lambda relation=relation: _online(X, y, relation)  # type: ignore[misc]
        for method in ("auto", "sampling", "tree"):
            yield f"stream/ftrl/{method}/{relation}", lambda m=method, r=relation: _ftrl(m, r)  # type: ignore[misc]
        for method in ("tries", "split", "split-parallel"):
            yield f"search/{method}/{relation}", lambda m=method, r=relation: _searched(m, r, X, y)  # type: ignore[misc]
        for kind in ("PrivateLogisticRegression", "PrivateRidge"):
            for robust in (False, True):
                yield (
                    f"intervals/{kind}/{robust}/{relation}",
                    lambda k=kind, o=robust, s=shared: _intervals(  # type: ignore[misc]
                        k, X, y, real, o, s
                    ),
                )
        yield from _recommenders(relation)


def _result(result: Any) -> Record:
    """Statement and numbers of a result that is no estimator."""
    record = statement_record(result.privacy_)
    record["released"] = {
        name: value for name, value in numbers(result).items() if not name.startswith("privacy_")
    }
    return record


def _labeled(teacher: Any, X: Any, y: Any, shared: dict[str, Any]) -> Record:
    stream = public("PrivateLabeler")(
        teacher, 50, n_teachers=20, epsilon=2.0, classes=[0, 1], delta=1e-5, **shared
    ).fit(X, y)
    record = statement_record(stream.privacy_)
    record["released"] = {"labels": repr(list(stream.label(X[:20])))}
    return record


def _error_rate(teacher: Any, X: Any, y: Any, relation: str) -> Record:
    return _result(
        public("private_error_rate")(
            teacher, X, y, epsilon=1.0, n_teachers=10, classes=[0, 1], neighboring=relation
        )
    )


def _agreement(X: Any, relation: str) -> Record:
    agreed = found("subsample_and_aggregate")(
        lambda rows: int(rows[:, 0].mean() > -2), X, [0, 1], n_chunks=60, epsilon=2.0, delta=1e-4,
        neighboring=relation,
    )  # fmt: skip
    return statement_record(agreed.privacy_) | {"released": {"value": str(agreed.value)}}


def _quantiles(X: Any, people: Any, relation: str) -> Record:
    options = {"candidates": np.linspace(-3, 3, 25), "epsilon": 1.0, "neighboring": relation}
    quantiles = public("private_quantiles")
    record = _result(quantiles(X, [0.1, 0.5], **options))
    both = _result(quantiles(X, 0.5, groups=people, max_rows_per_group=2, delta=1e-5, **options))
    record["grouped"] = {name: both[name] for name in ("event", "noise", "released")}
    return record


def _domains(frame: pd.DataFrame, relation: str) -> Record:
    domains, statement = public("private_domains")(
        frame, {"x0": np.linspace(-4, 4, 33)}, epsilon=1.0, neighboring=relation
    )
    return statement_record(statement) | {
        "released": {name: f"{domain.lower} {domain.upper}" for name, domain in domains.items()}
    }


def _evaluated(model: Any, X: Any, y: Any, delta: float | None, shared: dict[str, Any]) -> Record:
    bounds = {} if hasattr(model, "classes_") else {"target_bounds": (-1.0, 1.0)}
    groups = {"groups": np.arange(len(y)) % 2, "group_values": [0, 1]}
    return _result(public("evaluate")(model, X, y, delta=delta, **groups, **bounds, **shared))


def _online(X: Any, y: Any, relation: str) -> Record:
    model = public("PrivateOnlineLinearModel")(3, 200, epsilon=2.0, classes=[0, 1], neighboring=relation)
    record = plan_record(model.plan())
    model.partial_fit(X[:100], y[:100])
    record["released"] = numbers({"coef": np.asarray(model.coef_), "intercept": np.asarray(model.intercept_)})
    record["statement"] = statement_record(model.privacy_)["event"]
    return record


def _ftrl(method: str, relation: str) -> Record:
    model = public("PrivateFTRL")(4, 100, epsilon=2.0, delta=1e-5, method=method, neighboring=relation)
    record = plan_record(model.plan())
    costs = np.random.default_rng(0).random((60, 4))
    played = []
    for row in costs:
        played.append(int(model.predict_one()))
        model.partial_fit(row[None])
    record["released"] = {"actions": repr(played)}
    record["statement"] = statement_record(model.privacy_)["event"]
    return record


def _searched(method: str, relation: str, X: Any, y: Any) -> Record:
    size = {"n_samples": 600} if relation == "add-remove-one" else {}
    model = public("PrivateLogisticRegression")(classes=[0, 1], solver="output", neighboring=relation, **size)
    search = public("PrivateSearchCV")(
        model, {"feature_bound": [0.5, 2.0]}, 2.0, 1e-5, method=method, neighboring=relation
    ).fit(X, y)
    record = statement_record(search.privacy_)
    record["released"] = {
        "best": str(search.best_params_),
        "score": str(search.best_score_),
        "coef": digest(search.best_estimator_.coef_),
    }
    return record


def _intervals(kind: str, X: Any, y: Any, real: Any, robust: bool, shared: dict[str, Any]) -> Record:
    labels = {"classes": [0, 1]} if kind == "PrivateLogisticRegression" else {"target_bounds": (-1.0, 1.0)}
    target = y if "classes" in labels else real
    model = public(kind)(2.0, l2=0.1, **labels, **shared).fit(X, target)
    size = {"n_samples": shared["n_samples"]} if "n_samples" in shared else {}
    return _result(
        public("coefficient_intervals")(model, X, target, epsilon=5.0, delta=1e-3, robust=robust, **size)
    )


def _recommenders(relation: str) -> Iterator[tuple[str, Callable[[], Record]]]:
    rng = np.random.default_rng(0)
    truth = rng.uniform(-1, 1, (200, 2)) @ rng.uniform(-1, 1, (2, 12)) / 2
    mask = rng.random(truth.shape) < 0.4
    ratings, clicks = sp.csr_array(np.where(mask, truth, 0.0)), sp.csr_array(mask.astype(float))
    for feedback, known, data in (
        ("explicit", found("METHODS"), ratings),
        ("implicit", found("IMPLICIT"), clicks),
    ):
        for method in ("auto", *known):
            settings: dict[str, Any] = (
                {"rating_bounds": (-1.0, 1.0)} if feedback == "explicit" else {"feedback": feedback}
            )
            settings |= {"rank": 3, "n_users": 260, "neighboring": relation}

            def work(method: str = method, settings: dict[str, Any] = settings, data: Any = data) -> Record:
                model = public("PrivateMatrixCompletion")(method, 3.0, 1e-5, **settings)
                plan = model.plan(200, 12)
                record = plan_record(plan)
                model.fit(data)
                fitted = fitted_record(model, data[:20])
                record["released"] = fitted["released"]
                record["statement"] = {name: fitted[name] for name in ("event", "noise", "bounds")}
                return record

            yield f"recommend/{feedback}/{method}/{relation}", work


# -- the comparison --------------------------------------------------------------------------------------------


def run(every: int, only: str, full: bool, quiet: bool) -> dict[str, Record]:
    """All cells whose names begin with ``only``."""
    records: dict[str, Record] = {}
    start, reported = time.perf_counter(), 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for cells in (solver_cells(every, full), estimator_cells(folder), other_cells(folder)):
            for cell, work in cells:
                if cell.startswith(only):
                    records[cell] = json.loads(json.dumps(attempt(cell, work)))
                passed = time.perf_counter() - start
                if not quiet and passed > reported + 30:
                    reported = passed
                    print(f"{passed:6.0f} s, {len(records)} cells, at {cell}", flush=True)
    return records


def differences(before: Record, after: Record) -> list[str]:
    """Numbers that are not what they were; fields may move as long as their values are still there."""
    lines = []
    before, after = _on_the_same_tables(before, after)
    for name in sorted((before.keys() | after.keys()) - {"words", "plan"}):
        if before.get(name) != after.get(name):
            lines.append(f"{name}: {_short(before.get(name))} -> {_short(after.get(name))}")
    then, now = before.get("plan", {}), after.get("plan", {})
    values = set(now.values())
    lines += [
        f"plan.{path}: {_short(value)} -> {_short(now.get(path))}"
        for path, value in then.items()
        if now.get(path) != value and value not in values
    ]
    return lines


def _on_the_same_tables(*records: Record) -> list[Record]:
    """Records of a solver's cell without releases from kinds of tables that only one of the two was run on."""
    if not all(set(record.get("released", ())) <= set(KINDS) for record in records):
        return list(records)
    both = set.intersection(*(set(record.get("released", ())) for record in records))
    return [
        record | {"released": {kind: record["released"][kind] for kind in both}}
        if "released" in record
        else record
        for record in records
    ]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 400 else text[:400] + " ..."


def compare(before: dict[str, Record], after: dict[str, Record], show: int) -> int:
    """Print what is equal and what is not; 1 if a number differs or a cell is gone."""
    gone, new = before.keys() - after.keys(), after.keys() - before.keys()
    wrong: dict[str, list[str]] = {}
    words: Counter[tuple[str, str, str]] = Counter()
    places: dict[tuple[str, str, str], str] = {}
    equal = worded = 0
    for cell in sorted(before.keys() & after.keys()):
        if found_here := differences(before[cell], after[cell]):
            wrong[cell] = found_here
            continue
        then, now = before[cell].get("words", {}), after[cell].get("words", {})
        other = [name for name in sorted(then.keys() | now.keys()) if then.get(name) != now.get(name)]
        for name in other:
            change = (name, then.get(name, ""), now.get(name, ""))
            words[change] += 1
            places.setdefault(change, cell)
        equal += not other
        worded += bool(other)
    printed = {change for change in words if _printed(change[1]) != _printed(change[2])}
    for cell, lines in list(wrong.items())[:show]:
        print(f"NUMBERS {cell}", *lines, sep="\n    ")
    for change, count in sorted(words.items(), key=lambda item: item[0] not in printed)[:show]:
        mark = "WORDS with other printed numbers" if change in printed else "WORDS"
        print(f"{mark}, {count} cells, first {places[change]}, {change[0]}:")
        print(f"    - {change[1]}", f"    + {change[2]}", sep="\n")
    for cell in sorted(gone)[:show]:
        print(f"GONE {cell}")
    print(
        f"{equal} cells equal, {worded} with other words only ({len(words)} changes of words, {len(printed)} of them "
        f"in printed numbers), {len(wrong)} with other numbers, {len(gone)} gone, {len(new)} new"
    )
    if wrong:
        print(
            "other numbers in:",
            dict(Counter("/".join(cell.split("/")[:2]) for cell in wrong).most_common(40)),
        )
    return int(bool(wrong or gone))


def _printed(text: str) -> list[str]:
    return sorted(_NUMBER.findall(text))


def main() -> int:
    """Write the records of this version, or compare it with those of another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", type=Path, metavar="FILE", help="keep the records of this version")
    mode.add_argument("--against", type=Path, metavar="FILE", help="compare with records of another version")
    parser.add_argument(
        "--every", type=int, default=1, metavar="K", help="each K-th cell of the solvers' matrix only"
    )
    parser.add_argument(
        "--full", action="store_true", help="run all cells on all kinds of tables: 15 minutes"
    )
    parser.add_argument(
        "--only", default="", metavar="PREFIX", help="cells whose names begin so, as solver/newton/"
    )
    parser.add_argument(
        "--show", type=int, default=10, metavar="N", help="how many differences of a kind to print"
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    options = parser.parse_args()
    print(f"comparing {import_module('discreet').__file__}", flush=True)
    start = time.perf_counter()
    with threadpool_limits(1):
        records = run(options.every, options.only, options.full, options.quiet)
    refused = sum("refused" in record for record in records.values())
    print(f"{len(records)} cells, {refused} of them refused, {time.perf_counter() - start:.0f} s")
    if options.write is not None:
        options.write.write_text(json.dumps(records, indent=0, sort_keys=True))
        return 0
    before = json.loads(options.against.read_text())
    chosen = {
        cell: record
        for cell, record in before.items()
        if cell.startswith(options.only)
        and (cell in records or options.every == 1 or not cell.startswith("solver/"))
    }
    return compare(chosen, records, options.show)


if __name__ == "__main__":
    raise SystemExit(main())
