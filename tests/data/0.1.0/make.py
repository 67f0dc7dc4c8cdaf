"""Make the sample files of version 0.1.0: ledgers, models and streams that later versions must open.

Run with version 0.1.0 (commit 2f8ecaf) on the path, in an empty folder given as the only argument. Noise is secret,
so that another run makes other files; ``expected.json`` says what each holds.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.tree import DecisionTreeClassifier

import discreet
from discreet import (
    Ledger,
    PrivateLabeler,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMatrixCompletion,
    PrivateMedian,
    PrivatePoissonRegressor,
    PrivateRidge,
    PrivateSparseLogisticRegression,
    card,
)
from discreet.online import PrivateFTRL, PrivateOnlineLinearModel
from discreet.privacy.events import Composed, Gaussian, Laplace, Pure


def make(folder):
    """Write all samples and what they hold into an empty folder."""
    assert discreet.__version__ == "0.1.0", discreet.__version__
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, (4000, 3))
    y = np.where(X @ [2.0, -1.0, 0.5] > 0, "yes", "no")
    people = np.arange(4000) // 2
    probe = np.array([[0.4, -0.3, 0.1], [-0.2, 0.4, 0.0]])
    expected = {"probe": probe.tolist(), "models": {}, "ledgers": {}}

    records = Ledger(folder / "records.ledger", 20.0, 1e-3)
    records.charge(Laplace(20.0), label="mean age", who="alice")
    records.charge(Composed((Gaussian(30.0), Pure(0.1))), label="counts", who="bob")
    users = Ledger(folder / "users.ledger", 10.0, 1e-3, unit="user")
    fixed = Ledger(folder / "fixed.ledger", 1.0, 0.0, adaptive=False)
    for _ in range(3):
        fixed.charge(Pure(0.1), label="histogram", who="carol")

    def keep(name, model, schema=None):
        card.save(model, folder / f"{name}.json")
        paid = model.privacy_.paid
        shown = {"charge": None if paid is None else paid.charge, "unit": model.privacy_.guarantee.unit}
        if hasattr(model, "decision_function"):
            shown["scores"] = model.decision_function(probe).tolist()
        elif hasattr(model, "coef_"):
            shown["scores"] = model.predict(probe).tolist()
        expected["models"][name] = shown

    classes = ["no", "yes"]
    keep("logistic", PrivateLogisticRegression(1.0, 1e-6, classes=classes, ledger=records).fit(X, y))
    frame = pd.DataFrame(X, columns=["age", "bmi", "dose"])
    keep("named", PrivateLogisticRegression(1.0, 1e-6, classes=classes, ledger=records).fit(frame, y))
    per_user = PrivateLogisticRegression(1.0, 1e-6, classes=classes, ledger=records, max_rows_per_group=2)
    keep("per-user", per_user.fit(X, y, groups=people))
    per_user = PrivateLogisticRegression(1.0, 1e-6, classes=classes, ledger=users, max_rows_per_group=2)
    keep("users", per_user.fit(X, y, groups=people))
    keep("svc", PrivateLinearSVC(1.0, 1e-6, classes=classes).fit(X, y))
    keep("sparse", PrivateSparseLogisticRegression(1.0, 1e-6, classes=classes, ledger=records).fit(X, y))
    keep("ridge", PrivateRidge(1.0, 1e-6, target_bounds=(-2, 2), ledger=records).fit(X, X @ [2.0, -1.0, 0.5]))
    keep("poisson", PrivatePoissonRegressor(1.0, 1e-6, target_bounds=(0, 5)).fit(X, rng.poisson(1, 4000)))
    keep("median", PrivateMedian(1.0, 1e-6, radius=1.0, ledger=records).fit(X))
    ratings = sp.random_array(
        (300, 12), density=0.4, rng=rng, data_sampler=lambda size: rng.integers(1, 6, size)
    )
    recommender = PrivateMatrixCompletion("auto", 1.0, 1e-6, items=np.arange(12), ledger=users)
    keep("recommender", recommender.fit(ratings.tocsr()))

    for name, ledger in (("records", records), ("users", users), ("fixed", fixed)):
        expected["ledgers"][name] = {
            "spent": ledger.spent().epsilon,
            "charges": [
                [
                    charge.sequence,
                    charge.time,
                    charge.who,
                    charge.label,
                    charge.event.to_dict(),
                    charge.digest,
                ]
                for charge in ledger.history()
            ],
        }

    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    for name, pool in (("labeler", None), ("pool", X[:50])):
        labeler = PrivateLabeler(tree, 20, 40, 4.0, 1e-5, "plurality", classes=[0, 1], random_state=0)
        labeler.fit(X, (X[:, 0] > 0).astype(int), pool=pool)
        labeler.save(folder / f"{name}.stream")
        labeler.label(probe) if pool is None else labeler.label_rows([0, 1])
        expected[name] = labeler.remaining
    for name, method in (("sampling", "sampling"), ("tree", "tree")):
        learner = PrivateFTRL(3, 100, 1.0, 1e-6, method=method)
        for _ in range(5):
            learner.predict_one()
            learner.learn_one([0.1, 0.9, 0.5])
        learner.save(folder / f"{name}.stream")
        expected[name] = learner.step
    linear = PrivateOnlineLinearModel(3, 100, 1.0, 1e-6, classes=classes)
    for row, label in zip(X[:5], y[:5], strict=True):
        linear.learn_one(row, label)
    linear.save(folder / "linear.stream")
    expected["linear"] = linear.step
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
