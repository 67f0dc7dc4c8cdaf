"""Gradient boosting made private by agreement: many teachers on disjoint customers, one student for the world."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier

import discreet


def invented_customers(n, rng):
    """Customers who leave for a reason no linear model can say: short contracts with high bills, or many calls."""
    months, bill, calls = rng.uniform(0, 72, n), rng.uniform(10, 120, n), rng.poisson(2.0, n)
    leaves = ((months < 24) & (bill > 60)) | (calls >= 6)
    return np.column_stack([months, bill, calls]), leaves.astype(int)


def main(folder):
    ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=5.0, delta=1e-5)
    rng = np.random.default_rng(3)
    private, left = invented_customers(80_000, rng)
    public, _ = invented_customers(1_000, rng)  # without labels: a list of made-up contracts is enough
    test, truth = invented_customers(10_000, rng)
    model = discreet.PrivateTransferClassifier(
        DecisionTreeClassifier(max_depth=6),
        student=HistGradientBoostingClassifier(max_iter=50),
        epsilon=2.0,
        delta=1e-6,
        classes=[0, 1],
        ledger=ledger,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(private, left, public)
    linear = discreet.PrivateLogisticRegression(epsilon=2.0, delta=1e-6, classes=[0, 1], ledger=ledger)
    scaled = private / np.array([72, 120, 10])
    linear.fit(scaled, left)
    student, line = model.score(test, truth), linear.score(test / np.array([72, 120, 10]), truth)
    print(model.privacy_)
    print(
        f"student {student:.3f}, private logistic regression {line:.3f}, {model.n_answered_} labels released"
    )
    assert student > line + 0.01


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
