"""Second-order regression beside boosted sufficient statistics and the other solvers: R^2 on a held-out fifth.

Rows are made as in ``benchmarks.regression``: columns mapped to [-1, 1] by public ranges, scaled by 2 / root of their
number, clipped with their constant to norm 1. Boosted AdaSSP (Tang et al., 2023) is written here with floating-point
noise, because it is a yardstick and never a release: exact Gaussian composition of the smallest eigenvalue, the second
moment and T sums of clipped residuals. Run ``python -m benchmarks.regression --second-order``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import r2_score

from benchmarks.data import VARIABLE, MissingData
from benchmarks.regression import SOURCES, Array, Range, Source, load
from discreet import PrivateHuberRegressor, PrivateRidge, __version__
from discreet.privacy.accounting.gaussian import gaussian_mu
from discreet.privacy.guarantee import Neighboring
from discreet.records.bounds import Bounds

RESULTS = Path(__file__).parent / "results" / "regression-second-order.md"
DELTA = 1e-6
EPSILONS = (0.1, 0.5, 1.0, 4.0)
RELATIONS = (Neighboring.ADD_REMOVE_ONE, Neighboring.REPLACE_ONE)
BOOSTED = {
    "10 steps": (10, (1, 1, 1)),
    "10 steps, gradients": (10, (0.05, 0.25, 0.7)),
    "5 steps": (5, (0.05, 0.35, 0.6)),
}


def _unnamed(count: int, interval: Range) -> dict[str, Range]:
    return {f"column {j}": interval for j in range(count)}


_WINE = ((3, 16), (0, 1.6), (0, 1.2), (0, 30), (0, 0.4), (0, 120), (0, 350), (0.985, 1.005), (2.7, 4.1), (0.2, 1.6),
         (8, 15), (0, 1))  # fmt: skip
_DIABETES = (
    (18, 90),
    (1, 2),
    (15, 45),
    (60, 140),
    (90, 310),
    (40, 250),
    (20, 100),
    (2, 10),
    (3, 6.5),
    (55, 130),
)
SETS = {
    "california": SOURCES["california"],
    "bike": SOURCES["bike"],
    "wine": Source("wine_quality.npz", dict(zip(_unnamed(12, (0, 1)), _WINE, strict=True)), "quality", (0, 10)),
    "crime": Source("communities_crime.npz", _unnamed(100, (0, 1)), "rate", (0, 1)),
    "diabetes": Source("diabetes.npz", dict(zip(_unnamed(10, (0, 1)), _DIABETES, strict=True)), "progress", (0, 350)),
    "student": Source(
        "student_math.parquet",
        {"age": (15, 22), "Medu": (0, 4), "Fedu": (0, 4), "traveltime": (1, 4), "studytime": (1, 4), "failures": (0, 4),
         "famrel": (1, 5), "freetime": (1, 5), "goout": (1, 5), "Dalc": (1, 5), "Walc": (1, 5), "health": (1, 5),
         "absences": (0, 50), "G1": (0, 20), "G2": (0, 20)},
        "G3",
        (0, 20),
    ),
}  # fmt: skip


#: Sets on which no rule was set.
FURTHER = ("airfoil", "autompg", "concrete", "elevators", "energy", "gas", "housing", "keggdirected", "kin40k",
           "parkinsons", "pol", "protein", "pumadyn32nm", "skillcraft", "sml", "solar")  # fmt: skip
FURTHER_RESULTS = RESULTS.with_name("regression-further.md")
_MOST = 10_000  # records of a further set


@lru_cache(maxsize=1)
def rows_of(name: str, folder: Path | None = None) -> tuple[Array, Array, Range]:
    """Scaled rows, clipped targets, and their bounds; a further set is in a folder."""
    if folder is not None:
        table = np.loadtxt(folder / f"{name}.csv.gz", delimiter=",")
        table = table[np.random.default_rng(0).permutation(len(table))[:_MOST]]
        low, high = table.min(axis=0), table.max(axis=0)
        X = 2 * (table - low)[:, :-1] / np.where(high > low, high - low, 1.0)[:-1] - 1
        return 2 * X / math.sqrt(X.shape[1]), table[:, -1], (float(low[-1]), float(high[-1]))
    source = SETS[name]
    X, y = _students(source) if name == "student" else load(name, source)
    return X, np.clip(y, *source.target_bounds), source.target_bounds


def _students(source: Source) -> tuple[Array, Array]:
    """Numbers by their ranges, categories one-hot, two of them as one column."""
    import pandas as pd

    folder = os.environ.get(VARIABLE)
    if not folder or not (path := Path(folder) / source.file).exists():
        raise MissingData(f"set {VARIABLE} to the folder that holds {source.file}")
    table = pd.read_parquet(path)
    columns = []
    for name in table.columns.drop(source.target):
        if name in source.columns:
            low, high = source.columns[name]
            columns.append(2 * (table[name].to_numpy(np.float64).clip(low, high) - low) / (high - low) - 1)
        else:
            made = pd.get_dummies(table[name]).to_numpy(np.float64)
            columns += list(2 * (made[:, 1:] if made.shape[1] == 2 else made).T - 1)
    X = np.column_stack(columns)
    return 2 * X / math.sqrt(X.shape[1]), table[source.target].to_numpy(np.float64)


def boosted_adassp(
    rows: Array,
    y: Array,
    budget: float,
    relation: Neighboring,
    noise: np.random.Generator,
    steps: int,
    shares: Sequence[float],
) -> Array:
    """Coefficients of rows of norm at most 1 for targets in [-1, 1], with ``budget`` as Gaussian-DP parameter.

    ``shares`` are those of the squared budget for the smallest eigenvalue, the second moment and all residual sums.
    """
    p, contributions = rows.shape[1], relation.contributions
    least, moment, sums = (budget * math.sqrt(share / sum(shares)) for share in shares)
    second = rows.T @ rows
    lowest = np.linalg.eigvalsh(second)[0] + (noise.normal() - norm.isf(0.025)) / least
    stddev = math.sqrt(contributions) / moment
    upper = np.triu(noise.normal(size=(p, p)) * stddev / math.sqrt(2), 1)
    noisy = second + upper + upper.T + np.diag(noise.normal(size=p) * stddev)
    ridge = max(0.0, math.sqrt(p * math.log(2 * p**2 / 0.05)) * stddev - max(0.0, lowest))
    inverse = np.linalg.inv(noisy + ridge * np.eye(p))
    theta = np.zeros(p)
    for _ in range(steps):
        pulled = rows.T @ np.clip(y - rows @ theta, -1, 1)
        theta += inverse @ (pulled + noise.normal(size=p) * contributions * math.sqrt(steps) / sums)
    return theta


def _split(n: int, seed: int) -> list[NDArray[np.int64]]:
    return np.split(np.random.default_rng(seed).permutation(n), [int(0.8 * n)])


def _private(
    name: str, folder: Path | None, seed: int, epsilon: float, relation: Neighboring
) -> Iterator[tuple[str, float]]:
    """R^2 of our regressors."""
    X, y, bounds = rows_of(name, folder)
    train, test = _split(len(y), seed)
    options: dict[str, Any] = {"neighboring": relation.value, "target_bounds": bounds}
    if not relation.size_is_public:
        options["n_samples"] = len(train)
    for label, kind, solver in (
        ("auto", PrivateRidge, "auto"),
        ("statistics", PrivateRidge, "statistics"),
        ("objective", PrivateRidge, "objective"),
        ("Huber, auto", PrivateHuberRegressor, "auto"),
        ("Huber, noisy-gd", PrivateHuberRegressor, "noisy-gd"),
    ):
        model = kind(epsilon, DELTA, solver=solver, **options).fit(X[train], y[train])
        yield label, model.score(X[test], y[test])


def _boosted(
    name: str, folder: Path | None, seed: int, epsilon: float, relation: Neighboring
) -> Iterator[tuple[str, float]]:
    """R^2 of least squares without privacy and of boosted statistics, each setting."""
    X, y, (low, high) = rows_of(name, folder)
    scaled = (2 * y - low - high) / (high - low)
    rows = np.hstack([X, np.ones((len(X), 1))]) * Bounds(1.0).row_scales(X)[:, None]
    train, test = _split(len(y), seed)
    plain = np.linalg.lstsq(rows[train], scaled[train])[0]
    yield "least squares", r2_score(scaled[test], np.clip(rows[test] @ plain, -1, 1))
    budget, noise = gaussian_mu(epsilon, DELTA), np.random.default_rng([seed, round(1000 * epsilon)])
    for label, (steps, shares) in BOOSTED.items():
        theta = boosted_adassp(rows[train], scaled[train], budget, relation, noise, steps, shares)
        yield label, r2_score(scaled[test], np.clip(rows[test] @ theta, -1, 1))


def measure(seeds: int, names: Sequence[str], folder: Path | None = None) -> Iterator[dict[str, Any]]:
    """One row for every set, epsilon and relation: the scores of every method on every split."""
    for name in names:
        for relation in RELATIONS:
            for epsilon in EPSILONS:
                scores: dict[str, list[float]] = {}
                for seed in range(seeds):
                    for method in (_private, _boosted):
                        for label, score in method(name, folder, seed, epsilon, relation):
                            scores.setdefault(label, []).append(round(float(score), 5))
                row = {"data": name, "relation": relation.value, "epsilon": epsilon, "scores": scores}
                print(
                    name,
                    relation.value,
                    epsilon,
                    {k: round(float(np.mean(v)), 3) for k, v in scores.items()},
                    flush=True,
                )
                yield row


def _lead(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The mean lead and its standard error."""
    gain = np.subtract(ours, theirs)
    return float(gain.mean()), float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan


def report(rows: Sequence[dict[str, Any]], further: bool = False) -> str:
    """The table: means, and how far auto is ahead of the best boosted setting, chosen on the test rows in its favor."""
    lines = []
    ahead = {"more than 2 s.e. ahead": 0, "within 2 s.e.": 0, "more than 2 s.e. behind": 0}
    close = 0
    header: list[str] = []
    for row in rows:
        scores = row["scores"]
        means = {label: float(np.mean(found)) for label, found in scores.items()}
        best = max(BOOSTED, key=lambda label: means[label])
        lead, error = _lead(scores["auto"], scores[best])
        ahead[list(ahead)[0 if lead > 2 * error else 2 if lead < -2 * error else 1]] += 1
        own = max(("auto", "statistics", "objective"), key=lambda label: means[label])
        short, doubt = _lead(scores[own], scores["auto"])
        close += short <= doubt or own == "auto"
        shown = [label for label in scores if label not in BOOSTED]
        header = ["data set", "relation", "epsilon", *shown, "boosted, best of 3", "auto - boosted ± s.e."]
        cells = [row["data"], row["relation"], f"{row['epsilon']:g}", *(f"{means[s]:.3f}" for s in shown)]
        lines.append("| " + " | ".join([*cells, f"{means[best]:.3f}", f"{lead:+.3f} ± {error:.3f}"]) + " |")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in ahead.items())
    splits = " or ".join(map(str, sorted({len(row["scores"]["auto"]) for row in rows})))
    origin = (
        "No rule was set on these sets; ranges are those of the file, the same for all methods and not private."
        if further
        else "The constants behind `auto` were chosen on these sets, most on other splits, the rule for the constant "
        "alone on these: the table is not evidence about data that nobody looked at."
    )
    return "\n".join(
        [
            "# Second-order regression" + (", further sets" if further else ""),
            "",
            f"R² on a held-out fifth, mean of {splits} splits, delta = {DELTA:g}, discreet {__version__} (`python -m "
            f"benchmarks.regression {'--further FOLDER' if further else '--second-order'}`); under add-remove-one the "
            "true number of rows was declared. Columns without a name are `PrivateRidge` with that solver.",
            "",
            "`auto` against the best of three boosted AdaSSP settings, chosen on the test rows in its favor: "
            f"{counts}. `auto` is within one standard error of the best of `newton`, `statistics` and `objective` in "
            f"{close} of {len(rows)} cells.",
            "",
            origin,
            "",
            f"| {' | '.join(header)} |",
            "|---" * len(header) + "|",
            *lines,
        ]
    ) + "\n"  # fmt: skip


def run(seeds: int, names: Sequence[str], folder: Path | None, output: Path) -> str:
    """Measure the sets, keep their cells beside those of other sets, and write the page."""
    kept_in = output.with_suffix(".json")
    kept = json.loads(kept_in.read_text()) if kept_in.exists() else {}
    for name in names:
        kept[name] = list(measure(seeds, [name], folder))
        kept_in.write_text(json.dumps(kept) + "\n")
    order = FURTHER if folder else SETS
    text = report([row for name in order for row in kept.get(name, [])], folder is not None)
    output.write_text(text)
    return text
