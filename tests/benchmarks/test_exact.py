"""Exact audits: true deltas of discrete laws against prices, and what half of the noise would show."""

import math

import numpy as np
import pytest

from benchmarks.attest import exact
from discreet.privacy.events import Pure

PARTS = {part: exact.rows([part]) for part in exact.PARTS if part not in ("programs", "selections")}


@pytest.mark.parametrize("part", PARTS)
def test_no_claim_is_false_and_every_twin_is_caught(part):
    assert PARTS[part]
    for line in PARTS[part]:
        assert line.passed, line
        assert line.caught, line
        assert line.lemmas, line


@pytest.mark.lemma("frank-wolfe.md#lemma-5")
def test_choices_reach_their_price_or_stay_below_it():
    found = {line.subject: line for line in exact.rows(["selections"])}
    assert all(line.passed and line.caught for line in found.values())
    # Two candidates attain a bounded range; noisy maxima come closer the more there are, and never reach the price.
    assert found["ExponentialMechanism, 2 candidates"].ratio == pytest.approx(1.0, abs=1e-3)
    maxima = [line.true for name, line in found.items() if name.startswith("noisy maximum")]
    assert sorted(maxima) == maxima
    assert maxima[-1] < found["noisy maximum of 6, scale of 4 steps"].claimed


def test_gaussian_and_discrete_laplace_noise_are_priced_exactly():
    additive = {line.subject: line for line in PARTS["additive"]}
    assert additive["GaussianMechanism of 1 numbers"].ratio == pytest.approx(1.0, abs=1e-6)
    laplace = next(line for line in PARTS["integers"] if "Laplace" in line.subject)
    assert laplace.ratio == pytest.approx(1.0, abs=1e-9)


def test_the_tails_are_those_of_the_listed_law():
    """The closed forms for fine grids, on a grid so coarse that everything can be listed."""
    scale, shift = 5.0, 3
    places = np.arange(-400, 401)
    first, second = (np.exp(-np.abs(places - move) / scale) for move in (shift, 0))
    direct = exact.listed(lambda share: [(first / first.sum(), second / second.sum())])
    for epsilon in (0.0, 0.2, 0.5, 0.59):
        assert exact._laplace(scale, shift, False)(epsilon, 1.0) == pytest.approx(
            direct(epsilon, 1.0), abs=1e-12
        )


def test_a_false_price_is_noticed():
    response = exact.listed(lambda share: [(np.array([0.75, 0.25]), np.array([0.25, 0.75]))])
    assert exact.row("randomized response", Pure(math.log(3)), response, Pure).ratio == pytest.approx(1.0)
    wrong = exact.row("randomized response", Pure(1.0), response, Pure)
    assert not wrong.passed
    assert wrong.ratio > 1.05


def test_the_chances_of_streams_and_maxima_add_up():
    assert exact._largest(np.array([0.0, -2.0, 1.0]), 3.0).sum() == pytest.approx(1.0)
    vector = exact.SparseVector.calibrated(1.0, 0.01, max_unstable=2, n_queries=4, refresh=True)
    assert exact._patterns(vector, vector.margin + np.arange(4), 1.0).sum() == pytest.approx(1.0)
