"""Choosing among actions on a private stream, charged once for the whole horizon, saved and resumed in the middle."""

import tempfile
from pathlib import Path

import numpy as np

import discreet

HORIZON, ACTIONS = 4_000, 6


def main():
    rng = np.random.default_rng(9)
    means = np.array([0.0, 0.0, -0.6, 0.0, 0.1, 0.2])  # the third action is the cheapest
    with tempfile.TemporaryDirectory() as folder:
        ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=5.0, delta=1e-6, adaptive=False)
        learner = discreet.PrivateFTRL(ACTIONS, HORIZON, epsilon=4.0, delta=1e-7, ledger=ledger)
        total = np.zeros(2)
        for step in range(HORIZON):
            costs = np.clip(means + rng.uniform(-0.4, 0.4, size=ACTIONS), -1, 1)
            total += costs[learner.predict_one()], costs[2]
            learner = learner.learn_one(costs)
            if step == HORIZON // 2:  # the process stops; another goes on
                learner.save(Path(folder) / "stream.db")
                learner = discreet.PrivateFTRL.resume(Path(folder) / "stream.db")
        print(learner.privacy_)
        print(f"mean cost {total[0] / HORIZON:.3f}, of the best action {total[1] / HORIZON:.3f}")
        print(f"charges: {len(ledger.history())}")
        assert len(ledger.history()) == 1
        assert total[0] < 0.6 * total[1]


if __name__ == "__main__":
    main()
