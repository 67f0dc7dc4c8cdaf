"""Runs in the environment of interpret-core, where this package is not installed: fit DP-EBMs, score the test rows.

Usage: ``python ebm_worker.py given.npz jobs.json``; prints one JSON list of scores. Every column of the table is an
array of its own; columns of texts are nominal.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from typing import Any


def fit(np: Any, given: Any, job: dict[str, Any]) -> list[float]:
    """Return AUC or R^2 on the test rows, and the seconds of the fit."""
    privacy = importlib.import_module("interpret.privacy")
    metrics = importlib.import_module("sklearn.metrics")
    pandas = importlib.import_module("pandas")
    names = [name for name in given if name.startswith("column ")]
    ranges = {
        place: tuple(given[f"range {name}"].tolist())
        for place, name in enumerate(names)
        if f"range {name}" in given
    }
    told = {
        "epsilon": job["epsilon"],
        "delta": job["delta"],
        "privacy_bounds": ranges,
        "feature_types": ["continuous" if place in ranges else "nominal" for place in range(len(names))],
        "random_state": None,
        "n_jobs": 1,
        **job["settings"],
    }
    table = pandas.DataFrame({name: given[name] for name in names})
    train, test, y = given["train"], given["test"], given["y"]
    start = time.perf_counter()
    if "bounds" in given:
        low, high = given["bounds"].tolist()
        told |= {"privacy_target_min": low, "privacy_target_max": high}
        model = privacy.DPExplainableBoostingRegressor(**told).fit(table.iloc[train], y[train])
        seconds = time.perf_counter() - start
        found = np.clip(model.predict(table.iloc[test]), low, high)
        return [float(metrics.r2_score(y[test], found)), seconds]
    model = privacy.DPExplainableBoostingClassifier(**told).fit(table.iloc[train], y[train])
    seconds = time.perf_counter() - start
    return [float(metrics.roc_auc_score(y[test], model.predict_proba(table.iloc[test])[:, 1])), seconds]


def main(arguments: list[str]) -> None:
    """Run all jobs on one split."""
    np = importlib.import_module("numpy")
    warnings.simplefilter("ignore")
    with np.load(arguments[0]) as file:
        given = dict(file)
    with open(arguments[1], encoding="utf-8") as file:
        jobs = json.load(file)
    importlib.import_module("interpret.privacy")  # not part of the time of a fit
    print(json.dumps([fit(np, given, job) for job in jobs]))


if __name__ == "__main__":
    main(sys.argv[1:])
