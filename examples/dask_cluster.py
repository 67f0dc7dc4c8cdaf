"""The same fit on partitions that live in other processes: sums travel, rows do not, and noise is drawn once, here."""

import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import discreet

N, P = 60_000, 8


def main(folder):
    ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=3.0, delta=1e-5)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, P)) / 3
    y = (X @ np.linspace(-1, 1, P) > 0).astype(int)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster),
    ):
        model = discreet.PrivateLogisticRegression(epsilon=1.0, classes=[0, 1], ledger=ledger)
        model.fit(da.from_array(X, chunks=(10_000, P)), da.from_array(y, chunks=10_000))
    print(model.privacy_)
    accuracy = model.score(X, y)
    print(f"accuracy {accuracy:.3f}")
    assert accuracy > 0.95


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
