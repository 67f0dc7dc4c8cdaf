"""The private LASSO: what a thousandfold of useless columns costs, how the excess risk falls, and real data.

Run ``python -m benchmarks.lasso``, which writes ``results/lasso.md``; ``measure()`` returns the same numbers for other
reports. Rows and columns are generated, except the last table, which needs DISCREET_DATA.

Noise and the number of choices depend on rows and columns through n / log(2 p) alone, so useless columns cost as much
as having that many times fewer rows. Where the bound n^(-2/3) is attained (``benchmarks.papers.rates.l1_ball``) risk
grows by the logarithm to the power 2/3. Kinder data falls nearly like 1 / n, hence grows by a little less than the
logarithm itself. That holds at every size only because the point is a mean with even weights that begins at the
center: with the usual steps 2 / (t + 2), and without any noise, the risk here is 0.003 after 9 steps and 0.026 after
11.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.papers.fingerprints import FLOOR, fingerprinting
from benchmarks.papers.rates import VERTICES, Point, l1_ball, padded
from discreet import PrivateLasso, PrivateSparseLogisticRegression, __version__
from discreet.solvers.vertices.frank_wolfe import FrankWolfe

Array = NDArray[np.float64]

RESULTS = Path(__file__).parent / "results" / "lasso.md"
_SIGNAL, _PADDED = 100, 100_000  # columns that are not padding, and with padding
_FACTOR = math.log(2 * _PADDED) / math.log(2 * _SIGNAL)


def generated(n_samples: int, seed: int) -> tuple[Array, Array]:
    """Random signs; a target with three active columns, inside [-1, 1]."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n_samples, _SIGNAL))
    return X, X[:, :3] @ np.array([0.5, -0.3, 0.2])


@dataclass(frozen=True)
class Excess:
    """Mean excess risk over the ball (the optimum is 0), its standard error, and the certificate."""

    risk: float
    error: float
    certificate: float

    def __str__(self) -> str:
        return f"{self.risk:.5f} ± {self.error:.5f} | {self.certificate:.4f}"


def excess_risk(n_samples: int, n_columns: int, epsilon: float, solver: Any, repeats: int) -> Excess:
    """Fits on as many generated data sets, with useless columns beside the useful ones."""
    risks, certificate = [], math.nan
    for seed in range(repeats):
        X, y = generated(n_samples, seed)
        rows = X if n_columns == _SIGNAL else padded(X, n_columns)
        model = PrivateLasso(epsilon, target_bounds=(-1, 1), fit_intercept=False, solver=solver).fit(rows, y)
        risks.append(float(np.mean((X @ model.coef_[:_SIGNAL] - y) ** 2)) / 2)
        certificate = model.plan(n_samples, n_columns).certificate.expected  # type: ignore[attr-defined]
    return Excess(float(np.mean(risks)), float(np.std(risks, ddof=1) / math.sqrt(repeats)), certificate)


def measure(repeats: int = 20, largest: int = 32_000, epsilon: float = 1.0) -> dict[str, Any]:
    """Excess risk against columns and rows, with the log-log slope in the rows."""
    sizes = [n for n in (2_000, 4_000, 8_000, 16_000, 32_000) if n <= largest]
    columns = {
        (n, p): excess_risk(n, p, epsilon, "frank-wolfe", repeats)
        for n in sizes
        for p in (_SIGNAL, 1_000, 10_000, _PADDED)
    }
    fewer = {n: excess_risk(round(n / _FACTOR), _SIGNAL, epsilon, "frank-wolfe", repeats) for n in sizes}
    logs = np.log(np.array(sizes, dtype=float))
    slopes = {
        name: float(np.polyfit(logs, np.log([getattr(columns[n, _SIGNAL], part) for n in sizes]), 1)[0])
        for name, part in (("measured", "risk"), ("certified", "certificate"))
    }
    kinds = {
        "frank-wolfe, vertices": FrankWolfe(choice="vertices"),
        "frank-wolfe, usual steps": FrankWolfe(choice="vertices", weights="rising"),
        "frank-wolfe, worst curvature": FrankWolfe(choice="vertices", expected_curvature=1.0),
        "frank-wolfe, gradient": FrankWolfe(choice="gradient"),
        "frank-wolfe-dissertation": "frank-wolfe-dissertation",
        "mirror-descent": "mirror-descent",
    }
    solvers = {name: excess_risk(8_000, _SIGNAL, epsilon, kind, repeats) for name, kind in kinds.items()}
    return {"columns": columns, "fewer": fewer, "slopes": slopes, "solvers": solvers, "tight": tight()}


def tight(sizes: tuple[int, ...] = (8_000, 16_000), fits: int = 4) -> dict[int, tuple[float, float]]:
    """Growth by a thousandfold of columns where the bound is attained, with its standard error, by rows."""
    found = {}
    for n in sizes:
        few, many = (
            l1_ball("frank-wolfe", Point(n, times * VERTICES), 1e-6, 0, fits) for times in (1, 1_000)
        )
        growth = float(many.mean() / few.mean())
        errors = [float(part.std(ddof=1) / part.mean()) / math.sqrt(fits) for part in (few, many)]
        found[n] = growth, growth * math.hypot(*errors)
    return found


def real_data(repeats: int = 3) -> dict[str, tuple[float, float]]:
    """Accuracy of sparse logistic regression at epsilon 1, beside the share of the larger class."""
    found = {}
    for name in ("adult", "kddcup99", "clothing_reviews"):
        try:
            splits = list(data.splits(name, range(repeats)))
        except data.MissingData as missing:
            print(f"{name}: skipped, {missing}")
            continue
        scores = []
        for split in splits:
            model = PrivateSparseLogisticRegression(1.0, split.delta, classes=split.classes)
            scores.append(model.fit(split.X_train, split.y_train).score(split.X_test, split.y_test))
        share = float(np.mean(splits[0].y_test == 1))
        found[name] = float(np.mean(scores)), max(share, 1 - share)
    return found


def fingerprinting_losses(epsilon: float, repeats: int, w: int = 16, p: int = 512) -> tuple[float, float]:
    """The least loss over runs, and the loss below which a private method cannot come (1.1 w tau, k = p rows)."""
    losses = []
    for seed in range(repeats):
        X, y = fingerprinting(w, p, seed)
        model = PrivateLasso(epsilon, 1e-6, target_bounds=(-1, 1), fit_intercept=False).fit(X, y)
        losses.append(float(np.sum((X @ model.coef_ - y) ** 2)))
    return min(losses), FLOOR


def padding(
    columns: dict[tuple[int, int], Excess], fewer: dict[int, Excess], bound: dict[int, tuple[float, float]]
) -> list[str]:
    """What a thousandfold of zero columns costs, beside the logarithm of the number of vertices."""
    lines = [
        f"Zero columns, 100 to 100,000: the logarithm of the number of vertices grows {_FACTOR:.2f} times.",
        "",
        f"| rows | growth of the excess risk | over that of {_FACTOR:.2f} times fewer rows at 100 columns |",
        "|---|---|---|",
    ]
    growths, errors = [], []
    for n, few_rows in fewer.items():
        first, last = columns[n, _SIGNAL], columns[n, _PADDED]
        growth, relative = (
            last.risk / first.risk,
            math.hypot(last.error / last.risk, first.error / first.risk),
        )
        growths.append(growth)
        errors.append(relative)
        beside = last.risk / few_rows.risk
        of_it = beside * math.hypot(last.error / last.risk, few_rows.error / few_rows.risk)
        lines.append(f"| {n} | {growth:.2f} ± {growth * relative:.2f} | {beside:.2f} ± {of_it:.2f} |")
    mean = math.prod(growths) ** (1 / len(growths))
    error = mean * math.sqrt(sum(e * e for e in errors)) / len(errors)
    lines += [
        "",
        f"At most {_FACTOR:.2f} at every number of rows: {_yes(max(growths) <= _FACTOR)}. Geometric mean: {mean:.2f} ± "
        f"{error:.2f}.",
        "",
    ]
    factor = math.log(2_000 * VERTICES) / math.log(2 * VERTICES)
    attained = ", ".join(f"{growth:.2f} ± {error:.2f} at {n} rows" for n, (growth, error) in bound.items())
    met = all(growth <= factor for growth, _ in bound.values())
    return [
        *lines,
        f"Where the bound is attained, {VERTICES} to {1_000 * VERTICES} columns: {attained}; the logarithm grows "
        f"{factor:.2f} times, to the power 2/3 {factor ** (2 / 3):.2f}; at most {factor:.2f}: {_yes(met)}.",
        "",
    ]


def _yes(met: bool) -> str:
    return "yes" if met else "NO"


def report(result: dict[str, Any], repeats: int) -> str:
    """All tables in Markdown."""
    columns = result["columns"]
    made = f"Epsilon 1, mean and standard error of {repeats} runs. Measured with discreet {__version__}."
    lines = ["# Private LASSO", "", made, ""]
    lines += ["| rows | columns (100 useful) | excess risk | certificate |", "|---|---|---|---|"]
    lines += [f"| {n} | {p} | {excess} |" for (n, p), excess in columns.items()]
    slopes = ", ".join(f"{name} {slope:.2f}" for name, slope in result["slopes"].items())
    lines += ["", f"Slopes in rows at 100 columns: {slopes} (theory of the bound -0.67).", ""]
    lines += padding(columns, result["fewer"], result["tight"])
    lines += ["| solver (8000 rows) | excess risk | certificate |", "|---|---|---|"]
    lines += [f"| {name} | {excess} |" for name, excess in result["solvers"].items()]
    least, floor = fingerprinting_losses(0.1, repeats)
    lines += [
        "",
        f"Fingerprinting instance at epsilon 0.1: least loss {least:.2f}, never below {floor:.2f}: "
        f"{_yes(least >= floor)}.",
        "",
        "| data set, epsilon 1 | accuracy | larger class |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {score:.4f} | {share:.4f} |" for name, (score, share) in real_data().items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--largest", type=int, default=32_000, help="largest number of rows")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    text = report(measure(options.repeats, options.largest), options.repeats)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
