"""Noise is never repeated: not by forks, threads, pickles or copies; and test seeds taint."""

from __future__ import annotations

import contextlib
import copy
import json
import multiprocessing
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from discreet.mechanisms.additive import GaussianNoise
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")


def in_child(draw) -> list[int]:
    """What ``draw`` returns in a forked child."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a deadlock in the child must not hang the test
        os.write(sender, json.dumps(draw()).encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    assert answer, "the child died without an answer"
    return json.loads(answer)


@pytest.mark.parametrize("count", [0, 1, 7, 511, 512, 513, 1025, 50_001])
def test_words_are_new_uniform_and_of_the_right_number(count):
    source = Entropy()
    first, second = source.words(count), source.words(count)
    assert first.shape == second.shape == (count,)
    assert first.dtype == np.uint64
    assert len(set(first.tolist()) | set(second.tolist())) == 2 * count


def test_negative_number_of_words_is_refused():
    with pytest.raises(ValueError, match="at least 0"):
        Entropy().words(-1)


def test_every_bit_is_fair():
    with insecure_noise(1):
        words = fresh_entropy().words(1 << 17)
    ones = np.array([int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)])
    z = (ones - len(words) / 2) / np.sqrt(len(words) / 4)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    bytes_seen = np.bincount(words.view(np.uint8), minlength=256)
    assert stats.chisquare(bytes_seen).pvalue > 1e-3


def test_sizes_of_requests_do_not_repeat_words():
    source = Entropy()
    rng = np.random.default_rng(0)
    seen = np.concatenate([source.words(int(count)) for count in rng.integers(0, 2000, size=200)])
    assert len(np.unique(seen)) == len(seen)


def test_handed_out_words_are_erased_and_not_shared():
    source = Entropy()
    first = source.words(5)
    kept = first.copy()
    first[:] = 0
    second = source.words(5)
    assert not set(kept.tolist()) & set(second.tolist())
    assert np.all(source._buffer[: source._position] == 0)


def test_threads_never_share_a_word():
    source = Entropy()
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda k: source.words(1 + 37 * k % 900), range(400)))
    seen = np.concatenate(parts)
    assert len(np.unique(seen)) == len(seen)


@forks
def test_forked_children_differ_from_each_other_and_from_the_parent():
    source = Entropy()
    source.words(3)  # the buffer holds words that a naive child would repeat
    noise = GaussianNoise(1.0)
    draws = [in_child(lambda: source.words(20).tolist()) for _ in range(3)]
    draws.append(source.words(20).tolist())
    assert len(set().union(*draws)) == 80
    noises = [in_child(lambda: noise.draw(4, source).tolist()) for _ in range(2)]
    assert len(set().union(*noises)) == 8


@forks
def test_fork_while_another_thread_holds_the_lock():
    source = Entropy()
    held, done = threading.Event(), threading.Event()

    def hold():
        with source._lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    try:
        assert len(in_child(lambda: source.words(4).tolist())) == 4
    finally:
        done.set()
        thread.join()


def test_process_change_without_fork_hooks_starts_a_new_key():
    with insecure_noise(5):
        source = fresh_entropy()
    with insecure_noise(5):
        twin = fresh_entropy()
    assert source.words(3).tolist() == twin.words(3).tolist()
    source._process = -1  # what the child of a fork made by C code sees
    assert not set(source.words(100).tolist()) & set(twin.words(100).tolist())


def test_spawned_workers_are_secure_and_differ():
    module = "__import__('importlib').import_module('discreet.mechanisms.samplers.entropy')"
    ask = f"(lambda source: (source.secure, source.words(4).tolist()))({module}.fresh_entropy())"
    with insecure_noise(1), multiprocessing.get_context("spawn").Pool(2) as pool:
        answers = pool.map(eval, [ask] * 4, chunksize=1)
    assert all(secure for secure, _ in answers)
    assert len({word for _, words in answers for word in words}) == 16


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_no_copies(duplicate):
    with insecure_noise(1):
        sources = [fresh_entropy()]
    sources.append(Entropy())
    for source in sources:
        with pytest.raises(TypeError, match="repeat the same noise"):
            duplicate(source)


def test_insecure_noise_repeats_itself_across_runs_but_not_across_fits():
    def program():
        with insecure_noise(42):
            return [fresh_entropy().words(10).tolist() for _ in range(3)]

    first, second = program(), program()
    assert first == second
    assert len({word for words in first for word in words}) == 30
    with insecure_noise(43):
        assert fresh_entropy().words(10).tolist() != first[0]


def test_insecure_noise_taints_and_ends_with_the_block():
    assert fresh_entropy().secure
    with insecure_noise(1):
        assert not fresh_entropy().secure
        with insecure_noise(2):
            inner = fresh_entropy().words(5).tolist()
        assert not fresh_entropy().secure
    assert fresh_entropy().secure
    with insecure_noise(2):
        assert fresh_entropy().words(5).tolist() == inner
    with contextlib.suppress(RuntimeError), insecure_noise(2):
        raise RuntimeError
    assert fresh_entropy().secure
    with pytest.raises(AttributeError):
        fresh_entropy().secure = False


def test_insecure_noise_stays_in_its_thread():
    answers = []
    with insecure_noise(1):
        thread = threading.Thread(target=lambda: answers.append(fresh_entropy().secure))
        thread.start()
        thread.join()
    assert answers == [True]


def test_seed_must_be_a_whole_number():
    with pytest.raises(TypeError), insecure_noise(1.5):
        pass
