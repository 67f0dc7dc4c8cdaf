"""A loss of your own: a robust center and its spread, fitted together from clipped gradients of every record."""

import tempfile
from pathlib import Path

import numpy as np

import discreet
from discreet.losses import Hinge
from discreet.sets import L2Ball

N, COLUMNS = 5_000, 3
CENTER, SPREAD = np.array([0.5, -0.5, 0.2]), 0.4


def invented_rows(n, rng):
    """Measurements around a center, one in twenty of them nonsense."""
    rows = CENTER + SPREAD * rng.normal(size=(n, COLUMNS))
    rows[::20] = 50.0
    return rows


def gradients(theta, rows, labels):
    """Of the negative log-likelihood of a normal law, for the mean and the logarithm of the standard deviation.

    No linear model: both parameters act on the same record. One row of numbers for every row, computed from it alone.
    """
    mean, log_spread = theta[:-1], theta[-1]
    scaled = (rows - mean) * np.exp(-log_spread)
    return np.column_stack([-scaled * np.exp(-log_spread), COLUMNS - np.square(scaled).sum(axis=1)])


def main(folder):
    ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=4.0, delta=1e-5)
    rng = np.random.default_rng(3)
    X = invented_rows(N, rng)

    # The loss is not convex in both together, and nonsense is clipped: private all the same, accurate by experience.
    loss = discreet.GradientLoss(gradients, clip=5.0, batch=True)
    model = discreet.PrivateERM(loss, L2Ball(2.0, COLUMNS + 1), epsilon=2.0, delta=1e-6, ledger=ledger).fit(X)
    print(model.privacy_)
    print(
        f"center {model.coef_[:-1].round(2)}, spread {np.exp(model.coef_[-1]):.2f}; the mean {X.mean(axis=0).round(2)}"
    )
    assert np.abs(model.coef_[:-1] - CENTER).max() < 0.3
    assert np.abs(X.mean(axis=0) - CENTER).max() > 2

    # Losses of a linear prediction come with constants, and with more solvers; this one has a corner.
    y = np.where(X @ [1.0, 1.0, 0.0] > 0, 1.0, -1.0)
    machine = discreet.PrivateERM(Hinge(), epsilon=1.0, delta=1e-6, feature_bound=2.0, ledger=ledger).fit(
        X, y
    )
    accuracy = np.mean(np.sign(machine.predict(X)) == y)
    print(f"support vector machine: {accuracy:.3f}")
    assert accuracy > 0.85


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
