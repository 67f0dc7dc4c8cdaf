"""Tree sums: which blocks hold a step, the law of the noise, exact sums, and what a neighbor can move."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.mechanisms.recording import Recorder, recorded_by
from discreet.mechanisms.samplers.entropy import fresh_entropy, insecure_noise
from discreet.mechanisms.tree import TreeMechanism, softmax_index
from discreet.privacy.guarantee import Sensitivity


def blocks_of(vectors, horizon, seed=0):
    """The recorded block sums of a run."""
    tree, recorder = TreeMechanism(Sensitivity(1.0), 1.0, vectors.shape[1], horizon), Recorder()
    with insecure_noise(seed), recorded_by(recorder):
        run, source = tree.start(), fresh_entropy()
        for vector in vectors:
            run.add(vector, source)
    return tree, run, recorder.calls


@given(st.integers(1, 70), st.data())
@settings(max_examples=40)
@pytest.mark.lemma("online.md#theorem-2")
def test_one_step_is_in_at_most_levels_blocks_and_moves_each_by_no_more_than_declared(horizon, draw):
    changed = draw.draw(st.integers(0, horizon - 1))
    vectors = np.random.default_rng(horizon).uniform(-0.5, 0.5, size=(horizon, 2))
    others = vectors.copy()
    others[changed] = -others[changed]
    scale = np.linalg.norm(vectors[changed] - others[changed])
    vectors, others = vectors / scale, others / scale
    tree, _, calls = blocks_of(vectors, horizon)
    distances = [
        (np.linalg.norm(a.value - b.value), a.sensitivity.value)
        for a, b in zip(calls, blocks_of(others, horizon)[2], strict=True)
    ]
    moved = [observed for observed, _ in distances if observed > 0]
    assert tree.levels == math.floor(math.log2(horizon)) + 1
    assert 1 <= len(moved) <= tree.levels
    assert all(observed <= declared for observed, declared in distances)


def test_levels_are_attained_by_the_first_step_of_a_full_tree():
    vectors = np.zeros((64, 1))
    others = vectors.copy()
    others[0] = 1.0
    pairs = zip(blocks_of(vectors, 64)[2], blocks_of(others, 64)[2], strict=True)
    assert sum(bool(a.value[0] != b.value[0]) for a, b in pairs) == 7


def test_prefix_sums_are_exact_but_for_the_noise_of_their_blocks():
    vectors = np.random.default_rng(0).normal(size=(37, 3))
    tree, recorder = TreeMechanism(Sensitivity(1.0), 1.0, 3, 37), Recorder()
    with insecure_noise(1), recorded_by(recorder):
        run, source = tree.start(), fresh_entropy()
        for t, vector in enumerate(vectors, start=1):
            run.add(vector, source)
            noise = np.zeros(3)
            for level in range(tree.levels):
                if t >> level & 1:
                    end = t >> level << level
                    noise += recorder.calls[end - 1].output - recorder.calls[end - 1].value
            np.testing.assert_allclose(run.prefix() - noise, vectors[:t].sum(axis=0), atol=1e-7)


def test_noise_of_a_prefix_has_one_variance_per_binary_digit_and_evened_noise_one_per_level():
    tree = TreeMechanism(Sensitivity(1.0), 2.0, 3000, 12)
    run, source = tree.start(), fresh_entropy()
    even = [run.evened(source)]
    for t in range(1, 13):
        run.add(np.zeros(3000), source)
        # 3000 squares: relative standard error .026; 7 of them fail once in 4e11.
        assert np.var(run.prefix()) == pytest.approx(t.bit_count() * 4.0, rel=0.2)
        even.append(run.evened(source))
    for noise in even:
        assert np.var(noise) == pytest.approx(4 * 4.0, rel=0.2)


def test_the_horizon_is_kept_and_nonsense_is_refused():
    run, source = TreeMechanism(Sensitivity(1.0), 1.0, 2, 2).start(), fresh_entropy()
    run.add([np.nan, np.inf], source)
    with pytest.raises(ValueError, match="adds 2 numbers"):
        run.add([0.0], source)
    run.add([1e300, 0.0], source)
    with pytest.raises(ValueError, match="all 2 steps"):
        run.add([0.0, 0.0], source)
    with pytest.raises(ValueError, match="horizon"):
        TreeMechanism(Sensitivity(1.0), 1.0, 2, 0)


def test_huge_vectors_are_clamped_so_that_no_sum_wraps_around():
    """A sum that wrapped would be 2^64 steps from its neighbor's."""
    _, run, calls = blocks_of(np.full((8, 1), 1e300), horizon=8)
    assert run.exact.max() == 2**61
    assert all(call.value.item() > 0 for call in calls)


def test_softmax_index_follows_its_law():
    source, scores = fresh_entropy(), np.array([0.0, 1.0, 2.0])
    counts = np.bincount([softmax_index(scores, 1.0, source) for _ in range(3000)], minlength=3)
    law = np.exp(scores) / np.exp(scores).sum()
    assert np.all(np.abs(counts / 3000 - law) < 6 * np.sqrt(law * (1 - law) / 3000))
