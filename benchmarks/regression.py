"""Private regression beside non-private ridge on the same clipped data: R^2 on a held-out fifth.

Columns are mapped to [-1, 1] by ranges that are public knowledge (of the quantity, not of the data) and scaled by
2 / root of their number, so that a row is about as long as its constant column; rows are clipped to norm 1 with that
column, targets to declared bounds. Run ``python -m benchmarks.regression``, which writes ``results/regression.md``;
``measure()`` and ``small()`` return the same numbers. With ``--second-order`` see ``benchmarks.second_order``.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from benchmarks.data import VARIABLE, MissingData
from discreet import PrivateHuberRegressor, PrivateLinearRegression, PrivateRidge, __version__
from discreet.records.bounds import Bounds

Array = NDArray[np.float64]
RESULTS = Path(__file__).parent / "results" / "regression.md"
TOLERANCE = 0.05  # of R^2, what privacy may cost at epsilon 1
SIZES = (10, 30, 100, 300, 1000)  # few rows
Range = tuple[float, float]


@dataclass(frozen=True)
class Source:
    """A data set: its file, its columns with their public ranges, its target with its declared bounds."""

    file: str
    columns: dict[str, Range]
    target: str
    target_bounds: Range


SOURCES = {
    "california": Source(
        "california_housing.npz",
        {
            "MedInc": (0, 15),
            "HouseAge": (0, 52),
            "AveRooms": (0, 20),
            "AveBedrms": (0, 5),
            "Population": (0, 10_000),
            "AveOccup": (0, 10),
            "Latitude": (32, 42),
            "Longitude": (-125, -114),
        },
        "value",
        (0, 5),
    ),
    "bike": Source(
        "bike_sharing_hour.npz",
        {
            "season": (1, 4),
            "yr": (0, 1),
            "mnth": (1, 12),
            "hr": (0, 23),
            "holiday": (0, 1),
            "weekday": (0, 6),
            "workingday": (0, 1),
            "weathersit": (1, 4),
            "temp": (0, 1),
            "atemp": (0, 1),
            "hum": (0, 1),
            "windspeed": (0, 1),
        },
        "count",
        (0, 1000),
    ),
    "flights": Source(
        "nycflights.parquet",
        {
            "month": (1, 12),
            "day": (1, 31),
            "hour": (0, 23),
            "distance": (0, 5000),
            "air_time": (0, 700),
            "dep_delay": (-60, 240),
        },
        "arr_delay",
        (-60, 240),
    ),
}


def load(name: str, source: Source | None = None) -> tuple[Array, Array]:
    """Scaled rows and raw targets."""
    source = SOURCES[name] if source is None else source
    folder = os.environ.get(VARIABLE)
    if not folder or not (path := Path(folder) / source.file).exists():
        raise MissingData(f"set {VARIABLE} to the folder that holds {source.file}")
    raw, y = _read(path, source)
    low, high = np.array(list(source.columns.values()), dtype=np.float64).T
    scaled = 2 * (np.clip(raw, low, high) - low) / (high - low) - 1
    return 2 * scaled / np.sqrt(scaled.shape[1]), y


def _read(path: Path, source: Source) -> tuple[Array, Array]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        columns: Any = parquet.read_table(path, columns=[*source.columns, source.target])
        raw = np.column_stack([columns[name].to_numpy() for name in source.columns]).astype(np.float64)
        return raw, columns[source.target].to_numpy().astype(np.float64)
    with np.load(path, allow_pickle=False) as file:
        return file["X"].astype(np.float64), file["y"].astype(np.float64)


def _sources() -> Iterator[tuple[str, Source, Array, Array]]:
    """The data sets that are there, with their clipped targets."""
    for name, source in SOURCES.items():
        try:
            X, y = load(name)
        except MissingData as error:
            print(f"skipped {name}: {error}")
            continue
        yield name, source, X, np.clip(y, *source.target_bounds)


def measure(epsilons: Sequence[float] = (0.1, 1.0), seeds: int = 5) -> list[dict[str, float | str]]:
    """R^2 of every regressor and of ridge without privacy, mean over splits."""
    rows: list[dict[str, float | str]] = []
    for name, source, X, clipped in _sources():
        for epsilon in epsilons:
            scores: dict[str, list[float]] = {}
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(len(clipped))
                train, test = np.split(order, [int(0.8 * len(clipped))])
                scores.setdefault("ridge, not private", []).append(_reference(X, clipped, train, test))
                for kind in (PrivateRidge, PrivateLinearRegression, PrivateHuberRegressor):
                    model = kind(epsilon=epsilon, target_bounds=source.target_bounds).fit(
                        X[train], clipped[train]
                    )
                    scores.setdefault(kind.__name__, []).append(model.score(X[test], clipped[test]))
            row: dict[str, float | str] = {"data": name, "epsilon": epsilon}
            rows.append(row | {method: float(np.mean(found)) for method, found in scores.items()})
    return rows


def _reference(X: Array, y: Array, train: NDArray[np.int64], test: NDArray[np.int64]) -> float:
    """Ridge on rows clipped by the same rule, the constant column inside the clip."""
    rows = np.hstack([X, np.ones((len(X), 1))]) * Bounds(1.0).row_scales(X)[:, None]
    return float(Ridge(alpha=1.0, fit_intercept=False).fit(rows[train], y[train]).score(rows[test], y[test]))


def small(epsilons: Sequence[float] = (0.1, 1.0), seeds: int = 20) -> list[dict[str, Any]]:
    """The least R^2 of PrivateRidge on few rows over many splits, beside the least that predictions within the bounds
    of the target can have, which are at the farther end; and whether all were within them."""
    rows = []
    for name, source, X, y in _sources():
        low, high = source.target_bounds
        for epsilon in epsilons:
            for n in SIZES:
                scores, inside = [], True
                for seed in range(seeds):
                    order = np.random.default_rng(seed).permutation(len(y))
                    train, test = order[:n], order[n : n + 4000]
                    model = PrivateRidge(epsilon=epsilon, target_bounds=source.target_bounds)
                    predicted = model.fit(X[train], y[train]).predict(X[test])
                    inside &= bool(np.all((predicted >= low) & (predicted <= high)))
                    scores.append(r2_score(y[test], predicted))
                worst = 1 - float(np.mean(np.maximum(y - low, high - y) ** 2) / y.var())
                found = {"least": min(scores), "median": float(np.median(scores)), "limit": worst}
                rows.append({"data": name, "epsilon": epsilon, "rows": n, **found, "inside": inside})
    return rows


def report(seeds: int) -> str:
    """Both tables."""
    rows = measure(seeds=seeds)
    methods = [name for name in rows[0] if name not in ("data", "epsilon")] if rows else []
    lines = [
        "# Private regression",
        "",
        f"R² on a held-out fifth, mean of {seeds} splits; replace-one, delta = 1/n². "
        f"Measured with discreet {__version__}.",
        "",
        f"| data set | epsilon | {' | '.join(methods)} | lost by PrivateRidge | within {TOLERANCE} |",
        "|---" * (len(methods) + 4) + "|",
    ]
    for row in rows:
        lost = float(row["ridge, not private"]) - float(row["PrivateRidge"])
        met = ("yes" if lost <= TOLERANCE else "NO") if row["epsilon"] == 1 else ""
        cells = " | ".join(f"{row[method]:.3f}" for method in methods)
        lines.append(f"| {row['data']} | {row['epsilon']:g} | {cells} | {lost:.3f} | {met} |")
    lines += [
        "",
        "Few rows: R² of PrivateRidge over 20 splits. No model diverges: every prediction is within the bounds of the "
        "target, which limits R² from below.",
        "",
        "| data set | epsilon | rows | least R² | median R² | limit | all within bounds |",
        "|---" * 7 + "|",
    ]
    lines += [
        f"| {row['data']} | {row['epsilon']:g} | {row['rows']} | {row['least']:.2f} | {row['median']:.2f} | "
        f"{row['limit']:.2f} | {'yes' if row['inside'] else 'NO'} |"
        for row in small()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--second-order", action="store_true", help="compare with boosted statistics instead")
    parser.add_argument(
        "--further", type=Path, metavar="FOLDER", help="compare them on the sets of this folder"
    )
    parser.add_argument("--sets", nargs="*", help="of these sets only, with --second-order or --further")
    parser.add_argument("--output", type=Path, help="default: the page in results/")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # that the answer will be mostly noise, where it is
    output = options.output or RESULTS
    if options.second_order or options.further:
        from benchmarks import second_order

        further = options.further is not None
        names = options.sets or (second_order.FURTHER if further else tuple(second_order.SETS))
        page = second_order.FURTHER_RESULTS if further else second_order.RESULTS
        text = second_order.run(options.seeds, names, options.further, options.output or page)
    else:
        text = report(options.seeds)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
