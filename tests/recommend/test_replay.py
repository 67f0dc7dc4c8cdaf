"""Every release of every method, on neighbors and with the same past: the inputs differ by at most the sensitivity.

This is the hypothesis of the composition theorem (docs/proofs/recommenders.md, section 1), checked from outside:
the second run gets the first run's answers, so that only the changed user's contribution can differ.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from discreet import PrivateMatrixCompletion, insecure_noise
from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.recommend.methods import METHODS
from discreet.recommend.methods.clicks import IMPLICIT

N_USERS, N_ITEMS = 40, 12


class SamePast(Recorder):
    """Answers every call as it was answered before."""

    def __init__(self, earlier):
        super().__init__()
        self._answers = iter(earlier)

    def record(self, call):
        super().record(call)
        return next(self._answers).output


def crowd(seed, changed=None):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, (N_USERS, N_ITEMS))
    mask = rng.random((N_USERS, N_ITEMS)) < 0.4
    if changed is not None:
        values[5], mask[5] = changed(values[5].copy(), mask[5].copy())
    return sp.csr_array((values[mask], np.nonzero(mask)), shape=values.shape)


CHANGES = {
    "opposite": lambda values, mask: (-values, mask),
    "gone": lambda values, mask: (values, np.zeros_like(mask)),
    "everything at the bound": lambda values, mask: (np.ones(N_ITEMS), np.ones(N_ITEMS, dtype=bool)),
    "one item": lambda values, mask: (np.full(N_ITEMS, -1.0), np.arange(N_ITEMS) == 3),
    "two extremes": lambda values, mask: (
        np.where(np.arange(N_ITEMS) == 3, 1.0, -1.0),
        np.arange(N_ITEMS) < 5,
    ),
}


def calls(recorder, matrix, method, feedback, relation):
    model = PrivateMatrixCompletion(
        method,
        2.0,
        1e-6,
        rank=3,
        rating_bounds=(-1, 1),
        feedback=feedback,
        neighboring=relation,
        n_users=N_USERS,
        rating_clip=0.3,
        row_clip=0.3,
    )
    with insecure_noise(11), recorded_by(recorder):
        model.fit(matrix)
    return recorder.calls


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize(
    ("method", "feedback"),
    [*((name, "explicit") for name in METHODS), *((name, "implicit") for name in IMPLICIT)],
)
@pytest.mark.lemma("recommenders.md#section-1")
def test_no_release_moves_further_than_declared(method, feedback, relation):
    largest = 0.0
    for name, change in CHANGES.items():
        if relation == "zero-out" and name != "gone":
            continue
        first = calls(Recorder(), crowd(1), method, feedback, relation)
        second = calls(SamePast(first), crowd(1, change), method, feedback, relation)
        assert len(first) == len(second)
        for before, after in zip(first, second, strict=True):
            assert before.public == after.public
            distance = np.linalg.norm(np.asarray(before.value) - np.asarray(after.value))
            assert distance <= before.sensitivity.value * (1 + 1e-12), (name, before.mechanism)
            largest = max(largest, distance / before.sensitivity.value)
    assert largest > 0.1  # the changed user is felt: the check is not vacuous


def test_half_the_sensitivity_would_be_caught():
    """A broken twin that declares 1 where it should say 2 does not survive the same check."""
    first = calls(Recorder(), crowd(1), "profile", "explicit", "replace-one")
    second = calls(SamePast(first), crowd(1, CHANGES["opposite"]), "profile", "explicit", "replace-one")
    distances = [
        np.linalg.norm(np.asarray(a.value) - np.asarray(b.value)) for a, b in zip(first, second, strict=True)
    ]
    assert max(distances) > 1.0
