"""Programs of other libraries for `discreet audit --program`: two neighbors, what is claimed, what is released.

Runs in a peer's environment, where this package is not installed: ``python peer_programs.py CASE RUNS``. Every case
names the public report of the violation that it finds again, or is a control, for which none is known to us.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

Claim = dict[str, Any]
Runs = Iterator[tuple[int, list[float]]]


def diffprivlib_linear(runs: int) -> Iterator[Any]:
    """Linear regression, one column in [0, 1]: IBM/differential-privacy-library, issues 104 and 105.

    The sum of squares is given noise for the lower bound of the column, which is none. One record is 1 or 1/100, with
    target 0: the released coefficient is noise over that sum of squares.
    """
    np, models = importlib.import_module("numpy"), importlib.import_module("diffprivlib.models")
    yield _claim("diffprivlib", "LinearRegression", 1.0, 0.0, "replace-one")
    for _ in range(runs):
        for side, value in enumerate((1.0, 0.01)):
            model = models.LinearRegression(
                epsilon=1.0, bounds_X=(0.0, 1.0), bounds_y=(-1.0, 1.0), fit_intercept=False
            )
            model.fit(np.array([[value]]), np.array([0.0]))
            yield side, [math.log(abs(float(model.coef_[0])) + 1e-300)]


def diffprivlib_logistic(runs: int) -> Iterator[Any]:
    """Logistic regression on one record, with one label or the other: a control."""
    np, models = importlib.import_module("numpy"), importlib.import_module("diffprivlib.models")
    yield _claim("diffprivlib", "LogisticRegression", 1.0, 0.0, "replace-one")
    X = np.array([[1.0], [0.0], [0.0]])
    for _ in range(runs):
        for side in (0, 1):
            model = models.LogisticRegression(epsilon=1.0, data_norm=1.0, fit_intercept=False)
            model.fit(X, np.array([side, 0, 1]))
            yield side, [float(model.coef_[0, 0])]


def opacus_linear(runs: int) -> Iterator[Any]:
    """One step of DP-SGD on one record or two: meta-pytorch/opacus, issues 571 and 819.

    Noise is divided by an expected batch size that is computed from the number of records. All gradients are zero, so
    that the length of the released weights is that of the noise.
    """
    yield from _opacus((1, 2), "add-remove-one", runs)


def opacus_linear_control(runs: int) -> Iterator[Any]:
    """The same on two records, of which one has a gradient as long as any: a control."""
    yield from _opacus((2, 2), "zero-out", runs)


def _opacus(sizes: tuple[int, int], relation: str, runs: int) -> Iterator[Any]:
    torch = importlib.import_module("torch")
    opacus = importlib.import_module("opacus")
    torch.set_num_threads(1)
    steps = []
    for side, size in enumerate(sizes):
        engine = opacus.PrivacyEngine(accountant="prv")
        layer = torch.nn.Linear(200, 1, bias=False)
        rows, target = torch.zeros(size, 200), torch.zeros(size, 1)
        if sizes[0] == sizes[1] and side == 1:
            rows[0, 0], target[0, 0] = 1.0, -100.0
        data = torch.utils.data.TensorDataset(rows, target)
        loader = torch.utils.data.DataLoader(data, batch_size=max(sizes))
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        model, optimizer, loader = engine.make_private(
            module=layer, optimizer=optimizer, data_loader=loader, noise_multiplier=2.0, max_grad_norm=1.0
        )
        steps.append((layer, model, optimizer, loader))
        _step(torch, *steps[-1])
    yield _claim("opacus", "DP-SGD, one step", float(engine.get_epsilon(1e-2)), 1e-2, relation)
    for _ in range(runs):
        for side, parts in enumerate(steps):
            weights = _step(torch, *parts)
            yield side, [float(weights.norm()), float(weights[0, 0])]


def _step(torch: Any, layer: Any, model: Any, optimizer: Any, loader: Any) -> Any:
    torch.nn.init.zeros_(layer.weight)
    for rows, target in loader:
        optimizer.zero_grad()
        torch.nn.MSELoss()(model(rows), target).backward()
        optimizer.step()
    return layer.weight.detach().clone()


def interpret_regression(runs: int) -> Iterator[Any]:
    """One boosting step of a DP-EBM on targets in [9, 10]: interpretml/interpret, issue 523.

    Noise is given for the width of the range, 1, and not for its end: one record takes a target of 10 out of its bin.
    """
    yield from _interpret(9.0, 10.0, runs)


def interpret_regression_control(runs: int) -> Iterator[Any]:
    """The same on targets in [-1/2, 1/2]: a control."""
    yield from _interpret(-0.5, 0.5, runs)


def _interpret(low: float, high: float, runs: int) -> Iterator[Any]:
    """A released average times the released weight of its bin is the noisy sum that was divided by it."""
    np = importlib.import_module("numpy")
    privacy = importlib.import_module("interpret.privacy")
    yield _claim("interpret-core", "DPExplainableBoostingRegressor", 1.0, 1e-2, "add-remove-one")
    X = np.repeat([[0.1], [0.9]], 2000, axis=0)
    for _ in range(runs):
        for side in (0, 1):
            model = privacy.DPExplainableBoostingRegressor(
                epsilon=1.0,
                delta=1e-2,
                privacy_bounds={0: (0.0, 1.0)},
                privacy_target_min=low,
                privacy_target_max=high,
                feature_types=["continuous"],
                max_bins=4,
                max_rounds=1,
                n_jobs=1,
                random_state=None,
            )
            model.fit(X[side:], np.full(len(X) - side, high))
            below = int(np.sum(model.bins_[0][0] < 0.9))
            sums = (model.term_scores_[0] + model.intercept_) * model.bin_weights_[0]
            off = float(np.sum(sums[1 : 1 + below])) - model.learning_rate * high * 2000
            yield side, [max(-0.3, min(0.3, off))]


#: What is known in public of every case: the report, or nothing, for a control.
CASES: dict[str, tuple[Callable[[int], Iterator[Any]], str, str]] = {
    "diffprivlib-linear": (diffprivlib_linear, "diffprivlib", "IBM/differential-privacy-library 104, 105"),
    "diffprivlib-logistic": (diffprivlib_logistic, "diffprivlib", ""),
    "opacus-linear": (opacus_linear, "opacus", "meta-pytorch/opacus 571, 819"),
    "opacus-linear-control": (opacus_linear_control, "opacus", ""),
    "interpret-regression": (interpret_regression, "interpret", "interpretml/interpret 523"),
    "interpret-regression-control": (interpret_regression_control, "interpret", ""),
}


def _claim(package: str, name: str, epsilon: float, delta: float, relation: str) -> Claim:
    version = importlib.import_module("importlib.metadata").version(package)
    return {"name": f"{package} {version}, {name}", "epsilon": epsilon, "delta": delta, "relation": relation}


def main(arguments: list[str]) -> None:
    """Print the claim, then one line for every run."""
    warnings.simplefilter("ignore")
    importlib.import_module("logging").disable()
    for line in CASES[arguments[0]][0](int(arguments[1])):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
