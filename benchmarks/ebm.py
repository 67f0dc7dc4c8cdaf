"""DP-EBM and us: `interpret`'s private additive models beside ours, on the same tables, splits, epsilon and delta.

DP-EBM protects a record that is added or removed. Ours is shown under that relation and under replace-one, which is
stronger. Both choose bins by themselves and pay for them; both are told the same ranges. DP-EBM runs in an environment
of its own with its defaults and with two faster schedules; the best of the three on the test rows is shown too, which
nobody could choose so, in its favor. Run ``python -m benchmarks.ebm``, which writes ``results/ebm.md``; ``--sets``,
``--epsilons``, ``--splits`` and ``--settings`` narrow it down. Our figures are those of ``benchmarks.additive``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import additive
from benchmarks.papers.peers import Environment, interpreter
from discreet import Numeric

RESULTS = Path(__file__).parent / "results"
ENVIRONMENT = Environment(("interpret-core==0.7.8", "scikit-learn==1.9.1", "pandas==3.1.1"), "add-remove-one")
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "100 rounds, rate 0.03": {"max_rounds": 100, "learning_rate": 0.03},
    "30 rounds, rate 0.1": {"max_rounds": 30, "learning_rate": 0.1},
}
SETS = tuple(name for name in additive.SETS if name != "Bike, counts")
_WORKER = Path(__file__).parent / "ebm_worker.py"
_SECONDS = 3600


def measure(options: argparse.Namespace, known: dict[str, Any]) -> None:
    """Fit what is missing; ``known`` maps a cell to the scores and seconds of its splits."""
    for name in options.sets:
        data = additive.load(name)
        for seed in range(options.splits):
            jobs = {
                f"{name}|{epsilon:g}|{setting}": {
                    "epsilon": epsilon, "delta": additive.DELTA, "settings": SETTINGS[setting],
                }
                for epsilon in options.epsilons
                for setting in options.settings
                if len(known.get(f"{name}|{epsilon:g}|{setting}", {"scores": []})["scores"]) <= seed
            }  # fmt: skip
            if not jobs:
                continue
            for key, (score, seconds) in zip(jobs, _fitted(data, seed, list(jobs.values())), strict=True):
                cell = known.setdefault(key, {"scores": [], "seconds": []})
                cell["scores"].append(round(score, 5))
                cell["seconds"].append(round(seconds, 2))
                print(key, cell["scores"], flush=True)
            options.kept.write_text(json.dumps(known, indent=1) + "\n")


def _fitted(data: additive.Data, seed: int, jobs: list[dict[str, Any]]) -> list[list[float]]:
    """The scores of one split, from the other environment."""
    train, test = additive.split(data, seed)
    given: dict[str, Any] = {"train": train, "test": test, "y": data.labels}
    if data.bounds is not None:
        given["bounds"] = np.array(data.bounds, dtype=np.float64)
    for name, cells in data.columns.items():
        domain = data.schema.columns[name]
        if isinstance(domain, Numeric):
            middle = domain.lower / 2 + domain.upper / 2  # it takes no missing cells
            given[f"column {name}"] = np.clip(np.nan_to_num(cells, nan=middle), domain.lower, domain.upper)
            given[f"range column {name}"] = np.array([domain.lower, domain.upper])
        else:
            given[f"column {name}"] = cells.astype(str)
    with tempfile.TemporaryDirectory() as folder:
        table, listed = Path(folder) / "given.npz", Path(folder) / "jobs.json"
        np.savez(table, **given)
        listed.write_text(json.dumps(jobs))
        python = interpreter("interpret", ENVIRONMENT)
        done = subprocess.run(
            [str(python), str(_WORKER), str(table), str(listed)],
            stdout=subprocess.PIPE, text=True, timeout=_SECONDS, check=True,
        )  # fmt: skip
    return list(json.loads(done.stdout.splitlines()[-1]))


def report(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Both side by side, and how many cells we lead."""
    rows, counts = [], {"AR": [0, 0, 0], "RO": [0, 0, 0]}
    for name in SETS:
        for epsilon in additive.EPSILONS:
            found = {one: theirs.get(f"{name}|{epsilon:g}|{one}") for one in SETTINGS}
            default = found["default"]
            if default is None:
                continue
            best = max((one for one in found.values() if one), key=lambda one: float(np.mean(one["scores"])))
            cells = [_shown(default), _shown(best) if all(found.values()) else "not run"]
            for relation in additive.RELATIONS:
                mine = ours.get(f"{name}|{epsilon:g}|{relation}|default")
                cells.append(_shown(mine))
                if mine:
                    lead, error = _difference(mine, best)
                    counts[relation][0 if lead > error else 1 if lead >= -error else 2] += 1
            rows.append(f"| {name} | {epsilon:g} | {' | '.join(cells)} |")
    missing = [name for name in SETS if not any(key.startswith(f"{name}|") for key in theirs)]
    told = "; ".join(
        f"{relation}: ahead by more than one standard error in {ahead} cells, within one in {level}, behind in {behind}"
        for relation, (ahead, level, behind) in counts.items()
    )
    return "\n".join(
        [
            "# DP-EBM and our additive models",
            "",
            "AUC, or R² (California, Bike, Wine), on a held-out fifth: mean and standard error over splits, their "
            f"number in brackets. delta = {additive.DELTA:g} on both sides. DP-EBM is {ENVIRONMENT.packages[0]}, whose "
            "guarantee is for a record that is added or removed (AR), by its own account; ours is given under AR "
            "and under replace-one (RO), which protects the exchange of a record and needs about twice the noise. "
            "Ranges and categories are public for both; missing numbers are the middle of their range for DP-EBM, "
            "which takes none. *Best* is the best of its default and two faster schedules "
            f"({'; '.join(list(SETTINGS)[1:])}) by the mean on the test rows, in its favor. Written by "
            "`python -m benchmarks.ebm`.",
            "",
            f"Our default beside its best, split by split where both were run. {told}.",
            "",
            f"Not run here: {', '.join(missing) or 'nothing'}.",
            "",
            "| data set | epsilon | DP-EBM default | DP-EBM best | ours AR | ours RO |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[float, float]:
    """The mean lead over the splits that both have, and its standard error."""
    splits = min(len(ours["scores"]), len(theirs["scores"]))
    lead = np.subtract(ours["scores"][:splits], theirs["scores"][:splits])
    return float(lead.mean()), float(lead.std(ddof=1) / np.sqrt(splits)) if splits > 1 else 0.0


def _shown(cell: dict[str, Any] | None) -> str:
    return "not run" if not cell else additive.shown(cell["scores"])


def main() -> None:
    """Write and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(additive.EPSILONS))
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--kept", type=Path, default=RESULTS / "ebm.json")
    parser.add_argument("--output", type=Path, default=RESULTS / "ebm.md")
    options = parser.parse_args()
    known = json.loads(options.kept.read_text()) if options.kept.exists() else {}
    measure(options, known)
    text = report(known, json.loads((RESULTS / "additive.json").read_text()))
    options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
