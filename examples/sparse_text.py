"""The private LASSO on word counts: thousands of columns, a handful that matter, a model one can read."""

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import discreet

N, WORDS, TELLING = 30_000, 5_000, 5


def invented_reviews(n, rng):
    """Sparse 0/1 word occurrences; five words, among the common ones, decide what a reviewer thinks."""
    frequency = 0.3 / (1 + np.arange(WORDS)) ** 0.7
    counts = rng.binomial(n, frequency)
    columns = np.repeat(np.arange(WORDS), counts)
    rows = np.concatenate([rng.choice(n, size=count, replace=False) for count in counts])
    X = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(n, WORDS))
    opinion = X[:, :TELLING] @ np.array([1.0, -1.0, 1.0, -1.0, 1.0]) + 0.2 * rng.normal(size=n)
    return X, np.clip(opinion, -3, 3)


def main(folder):
    ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=5.0, delta=1e-5)
    X, opinion = invented_reviews(N, np.random.default_rng(11))
    model = discreet.PrivateLasso(
        epsilon=4.0, delta=1e-6, target_bounds=(-3, 3), l1_radius=4.0, fit_intercept=False, ledger=ledger
    )
    model.fit(X, opinion)
    found = np.argsort(-np.abs(model.coef_))[:TELLING]
    print(model.privacy_)
    print(f"{np.count_nonzero(model.coef_)} of {WORDS} words are used; the largest: {sorted(found.tolist())}")
    assert set(found.tolist()) == set(range(TELLING))
    assert np.count_nonzero(model.coef_) < 300


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
