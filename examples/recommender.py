"""Item factors that may be published, and recommendations that each user computes from their own row."""

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import discreet

USERS, ITEMS, RATINGS = 20_000, 80, 20


def main(folder):
    ledger = discreet.Ledger(Path(folder) / "budget.ledger", epsilon=4.0, delta=1e-5, unit="user")
    rng = np.random.default_rng(5)
    taste, kind = rng.normal(size=(USERS, 2)), rng.normal(size=(ITEMS, 2))
    users = np.repeat(np.arange(USERS), RATINGS)
    items = np.concatenate([rng.choice(ITEMS, RATINGS, replace=False) for _ in range(USERS)])
    stars = np.clip(3 + (taste[users] * kind[items]).sum(axis=1), 1, 5)
    ratings = sp.csr_matrix((stars, (users, items)), shape=(USERS, ITEMS))

    model = discreet.PrivateMatrixCompletion(
        epsilon=2.0, delta=1e-6, rating_bounds=(1, 5), ratings_per_user=RATINGS, rank=2, ledger=ledger
    )
    model.fit(ratings)
    print(model.privacy_)

    someone = rng.normal(size=2)  # a new user, who was not in the data: served from their own ratings
    seen = rng.choice(ITEMS, RATINGS, replace=False)
    truth = np.clip(3 + kind @ someone, 1, 5)
    row = sp.csr_matrix((truth[seen], (np.zeros(RATINGS, dtype=int), seen)), shape=(1, ITEMS))
    unseen = np.setdiff1d(np.arange(ITEMS), seen)
    error = np.sqrt(np.mean((model.predict(row)[0][unseen] - truth[unseen]) ** 2))
    blind = np.sqrt(np.mean((truth[seen].mean() - truth[unseen]) ** 2))
    chosen, _ = model.recommend(row, 5)
    print(
        f"error on unseen items {error:.2f}, of the user's own mean {blind:.2f}; recommended: {np.ravel(chosen)}"
    )
    assert error < 0.8 * blind
    assert truth[np.ravel(chosen)].mean() > truth[unseen].mean() + 0.5


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
