"""The recommenders' rows as tables: results/recommenders.md."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "recommenders.md"
# RMSE to reach with default arguments: (data set, epsilon) -> bound.
TARGETS = {
    ("rank 1, 400 items", 0.1): 0.05,
    ("rank 1, 400 items", 1.0): 0.033,
    ("rank 1, 400 items", 5.0): 0.031,
    ("movielens1m", 1.0): 0.960,
    ("movielens1m", 5.0): 0.915,
    ("jester1", 1.0): 4.30,
    ("jester1", 5.0): 4.18,
}
_CURVES = {
    "movielens1m": "MovieLens 1M, 10% held out",
    "movielens100k": "MovieLens 100K, 10% held out",
    "jester1": "Jester 1, 1% held out",
    "movielens1m, 400 items": "MovieLens 1M, the 400 most-rated items (a choice declared public), 10% held out",
    "movielens1m, 400 items, 1%": "The protocol of the dissertation's chapter 6: MovieLens 1M (for 10M), the 400 "
    "most-rated items, 1% held out, a split per run; numbers of rounds and the radius are fixed, not cross-validated",
    "movielens100k, 400 items, 1%": "The same protocol: MovieLens 100K, the 400 most-rated items",
    "jester1, 100 items, 1%": "The same protocol: Jester 1, all 100 items",
    "block, 1200 x 1200, 77%": "Generated block, 1,200 users x 1,200 items, 77% rated (declared), 5% held out",
    "block, 3000 x 400, 60%": "Generated block, 3,000 users x 400 items, 60% rated (declared), 5% held out",
    "rank 1, 400 items": "Synthetic, rank 1, 500,000 users x 400 items, 80 ratings each",
    "rank 1, 900 items": "Synthetic, rank 1, 500,000 users x 900 items, 80 ratings each",
    "rank 5, 400 items": "Synthetic, rank 5, 500,000 users x 400 items, 80 ratings each",
    "rank 20, 400 items": "Synthetic, rank 20, 500,000 users x 400 items, 80 ratings each",
    **{
        f"rank {rank}, {items} items, 100000 users": f"Synthetic, rank {rank}, 100,000 users x {items} items, 80 each"
        for rank, items in ((1, 400), (1, 900), (5, 400), (20, 400))
    },
    "filmtrust": "FilmTrust, 10% held out: no constant was tuned on it",
    "flixster3k": "Flixster (3,000 items), 10% held out: no constant was tuned on it",
    "movielens1m, clicks": "MovieLens 1M as clicks (ratings above the middle), 10% held out",
    "jester1, clicks": "Jester 1 as clicks (ratings above the middle), 1% held out",
}
_MEASURES = {"rmse": "RMSE", "ndcg": "NDCG@10", "precision": "precision@10", "recall": "recall@10"}


def grouped(rows: Iterable[Row]) -> dict[tuple[str, str, float], list[Row]]:
    """Rows of fits by data, method and epsilon."""
    groups: dict[tuple[str, str, float], list[Row]] = defaultdict(list)
    for row in rows:
        if "run" in row:
            groups[row["data"], row["method"], row["epsilon"]].append(row)
    return groups


def mean(rows: list[Row], measure: str) -> float:
    """Average over runs; not a number where there is none."""
    values = [row[measure] for row in rows if measure in row]
    return float(np.mean(values)) if values else math.nan


def print_targets(rows: Iterable[Row]) -> int:
    """Every target beside what was measured; returns 1 if one was missed or not measured."""
    lines, missed = target_lines(rows)
    print("\n".join(lines))
    return int(missed)


def target_lines(rows: Iterable[Row]) -> tuple[list[str], bool]:
    """A table of the targets."""
    groups, missed = grouped(rows), False
    lines = [
        "| data | epsilon | RMSE of auto | largest | runs | target | met |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, epsilon), bound in TARGETS.items():
        own = groups.get((name, "auto", epsilon), [])
        value = mean(own, "rmse")
        missed |= not value <= bound
        largest = max((row["rmse"] for row in own), default=math.nan)
        verdict = "yes" if value <= bound else "NO" if own else "not measured"
        lines.append(
            f"| {name} | {epsilon:g} | {value:.4f} | {largest:.4f} | {len(own)} | {bound:g} | {verdict} |"
        )
    return lines, missed


def comparison_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Whether auto is ever worse than a private bias model or the printed Frank-Wolfe."""
    groups = grouped(rows)
    yield "| data | epsilon | auto (runs) | bias (runs) | printed Frank-Wolfe (runs) | auto never worse |"
    yield "|---|---|---|---|---|---|"
    for name in _CURVES:
        for (where, method, epsilon), own in sorted(groups.items()):
            rivals = [groups.get((name, rival, epsilon), []) for rival in ("bias", "frank-wolfe-printed")]
            if where != name or method != "auto" or not any(rivals):
                continue
            measure = "ndcg" if "clicks" in name else "rmse"
            verdicts = [_verdict(own, rival, measure) for rival in rivals if rival]
            verdict = "NO" if "NO" in verdicts else "equal" if "equal" in verdicts else "yes"
            shown = " | ".join(_cell(group, measure) for group in (own, *rivals))
            yield f"| {name} | {epsilon:g} | {shown} | {verdict} |"


def _verdict(own: list[Row], rival: list[Row], measure: str) -> str:
    """Whether the own mean is better, or worse by not more than two standard errors (equal)."""
    sign = 1 if measure == "rmse" else -1
    first, second = (sign * np.array([row[measure] for row in group]) for group in (own, rival))
    if first.mean() <= second.mean():
        return "yes"
    spread = math.hypot(*(np.std(part) / math.sqrt(max(len(part) - 1, 1)) for part in (first, second)))
    return "equal" if first.mean() - second.mean() <= 2 * spread else "NO"


def curve_lines(rows: list[Row], name: str) -> Iterator[str]:
    """Tables of one data set: a row per method, a column per epsilon."""
    own = {key[1:]: group for key, group in grouped(rows).items() if key[0] == name}
    if not any(math.isfinite(epsilon) for _, epsilon in own):
        return
    yield f"\n## {_CURVES[name]}\n"
    epsilons = sorted({epsilon for _, epsilon in own if math.isfinite(epsilon)})
    methods = sorted({method for method, _ in own if not method.startswith("no privacy")})
    references = {method: group for (method, _), group in own.items() if method.startswith("no privacy")}
    for measure, title in _MEASURES.items():
        if all(math.isnan(mean(group, measure)) for group in own.values()):
            continue
        if measure in ("precision", "recall") and "clicks" not in name:
            continue
        yield f"\n{title} (number of runs)\n"
        yield f"| method | {' | '.join(f'{epsilon:g}' for epsilon in epsilons)} |"
        yield "|---" * (len(epsilons) + 1) + "|"
        for method in methods:
            groups = [own.get((method, epsilon), []) for epsilon in epsilons]
            yield f"| {method} | {' | '.join(_cell(group, measure) for group in groups)} |"
        yield from _reference_lines(references, measure, len(epsilons))
    chosen = [
        f"{epsilon:g}: {own['auto', epsilon][0]['ran']}" for epsilon in epsilons if ("auto", epsilon) in own
    ]
    yield f"\n`auto` took, by epsilon, {', '.join(chosen)}."


def _cell(rows: list[Row], measure: str) -> str:
    """The mean over the runs that have the measure, and their number."""
    runs = sum(measure in row for row in rows)
    return f"{mean(rows, measure):.4f} ({runs})" if runs else ""


def _reference_lines(references: dict[str, list[Row]], measure: str, width: int) -> Iterator[str]:
    """The bias model and the best alternating least squares without privacy, chosen on the held-out ratings."""
    tuned = {method: mean(group, measure) for method, group in references.items() if "als" in method}
    if "no privacy: bias" in references:
        value = mean(references["no privacy: bias"], measure)
        yield f"| no privacy: bias model | {' | '.join([f'{value:.4f}'] * width)} |"
    if tuned:
        best = (min if measure == "rmse" else max)(tuned.values())
        yield f"| no privacy: tuned ALS | {' | '.join([f'{best:.4f}'] * width)} |"


def scale_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Time and memory of fits with a million users, the latest of every method."""
    for row in {row["scale"]: row for row in rows if "scale" in row}.values():
        yield (
            f"\n`{row['scale']}`: {row['users']:,} users x {row['items']:,} items, {row['ratings']:,} ratings, "
            f"rank one, epsilon 1: fit {row['seconds']:.0f} s, peak memory {row['gigabytes']:.2f} GB (of which "
            f"{row['gigabytes of data']:.2f} GB before the fit), RMSE {row['rmse']:.4f}.\n"
        )
        base = max(next(iter(row["steps"].values())), 1e-4)
        yield "| global step | seconds | passes over the ratings |"
        yield "|---|---|---|"
        for step, seconds in row["steps"].items():
            yield f"| {step} | {seconds:.2f} | {seconds / base:.1f} |"


def write(rows: list[Row]) -> int:
    """Write the report; returns 1 if a target is missed or not measured."""
    targets, missed = target_lines(rows)
    lines = [
        "# Recommenders",
        "",
        "Written by `python -m benchmarks.recommenders report` from `recommenders.jsonl`; delta 1e-6, replace-one,",
        "unit: user, default arguments. Every run draws fresh noise. Real data are split once, synthetic data are",
        "drawn anew for every run (two held-out ratings of 100,000 users are predicted). Rankings: held-out items",
        "rated above the middle among all items not in training; 2,000 users, first three runs.",
        "",
        "## Targets",
        "",
        *targets,
        "",
        "## `auto` against a private bias model and the printed Frank-Wolfe, mean RMSE (of clicks, NDCG@10)",
        "",
        "Equal: worse by at most two standard errors of the difference of the means.",
        "",
        *comparison_lines(rows),
    ]
    for name in _CURVES:
        lines.extend(curve_lines(rows, name))
    lines.extend(["", "## A million users", *scale_lines(rows), ""])
    RESULTS.write_text("\n".join(lines))
    print(f"wrote {RESULTS.name}")
    return int(missed)
