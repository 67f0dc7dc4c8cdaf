"""Private regression beside non-private ridge on the same clipped data: R^2 on a held-out fifth.

Columns are mapped to [-1, 1] by ranges that are public knowledge (of the quantity, not of the data) and scaled by
2 / root of their number, so that a row is about as long as its constant column; rows are clipped to norm 1 with that
column, targets to declared bounds. Run ``python -m benchmarks.regression``; ``measure()`` returns the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from benchmarks.data import VARIABLE, MissingData
from discreet import PrivateHuberRegressor, PrivateLinearRegression, PrivateRidge
from discreet.bounds import Bounds

Array = NDArray[np.float64]
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


def load(name: str) -> tuple[Array, Array]:
    """Scaled rows and raw targets."""
    source = SOURCES[name]
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


def measure(epsilons: Sequence[float] = (0.1, 1.0), seeds: int = 5) -> list[dict[str, float | str]]:
    """R^2 of every regressor and of ridge without privacy, mean over splits."""
    rows: list[dict[str, float | str]] = []
    for name, source in SOURCES.items():
        try:
            X, y = load(name)
        except MissingData as error:
            print(f"skipped {name}: {error}")
            continue
        clipped = np.clip(y, *source.target_bounds)
        for epsilon in epsilons:
            scores: dict[str, list[float]] = {}
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(len(y))
                train, test = np.split(order, [int(0.8 * len(y))])
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


def main() -> None:
    """Print the table."""
    for row in measure():
        cells = "  ".join(
            f"{name} {value:.3f}" for name, value in row.items() if name not in ("data", "epsilon")
        )
        print(f"{row['data']:12s} epsilon {row['epsilon']:<5g} {cells}")


if __name__ == "__main__":
    main()
