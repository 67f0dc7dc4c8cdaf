"""Fuzzing of files: schemas, policies, benchmark results, streams. A clear error or a result; never a surprise."""

import contextlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.papers.results import Results
from discreet import Ledger, LedgerError, PrivateFTRL
from discreet.online import HorizonReached, StreamError
from discreet.privacy.ledger.policy import Policy
from discreet.tables.schema import Categorical, Numeric, Schema, SchemaError, Target

FUZZ = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
damage = st.tuples(st.integers(0, 10**6), st.integers(0, 255), st.booleans())


def damaged(content, place, byte, cut):
    place %= len(content)
    return content[:place] if cut else content[:place] + bytes([byte]) + content[place + 1 :]


def attempt(read, *allowed):
    """What ``read`` returns, or None if it refuses with an allowed error that says something."""
    error = None
    try:
        return read()
    except allowed as problem:
        error = str(problem)
    assert len(error) > 10, error
    return None


SCHEMA = Schema(
    {"age": Numeric(0, 100), "ward": Categorical(("n", "s"))}, target=Target("sick", ("no", "yes"))
)
words = st.sampled_from(["age", "kind", "numeric", "low", "high", "columns", "target", "x", "é", ""])
plain = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**20), 10**20) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@FUZZ
@given(suffix=st.sampled_from([".toml", ".json"]), harm=damage)
def test_damaged_schemas_are_read_or_refused(suffix, harm):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"s{suffix}"
        SCHEMA.to_file(path)
        path.write_bytes(damaged(path.read_bytes(), *harm))
        found = attempt(lambda: Schema.from_file(path), SchemaError)
        assert found is None or isinstance(found, Schema)


@FUZZ
@given(content=plain)
def test_any_json_as_a_schema(content):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s.json"
        path.write_text(json.dumps(content))
        attempt(lambda: Schema.from_file(path), SchemaError)


POLICY = b"""[data.cohort]
ledger = "cohort.ledger"
epsilon = 3.0
delta = 1e-6

[people.alice]
cohort = 1.0
"""


@FUZZ
@given(harm=damage)
def test_damaged_policies_are_read_or_refused(harm):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "policy.toml"
        path.write_bytes(damaged(POLICY, *harm))
        policy = attempt(lambda: Policy.read(path), LedgerError)
        for data in policy.data if policy is not None else ():
            attempt(lambda data=data: policy.dataset(data), LedgerError, ValueError)


LINES = [
    "data = 3",
    "[data]",
    "[data.a]",
    "ledger = 1",
    'ledger = "l"',
    "epsilon = 1.0",
    "delta = []",
    "delta = 1e-6",
    "a = 1",
]
LINES += [
    "[people]",
    "people = 1",
    "[people.b]",
    "a = true",
    "a = []",
    "epsilon = nan",
    "epsilon = 1e999",
    "[[data]]",
]


@settings(FUZZ, max_examples=150)
@given(lines=st.lists(st.sampled_from(LINES), max_size=8))
def test_any_policy_is_read_or_refused(lines):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "policy.toml"
        path.write_text("\n".join(lines))
        policy = attempt(lambda: Policy.read(path), LedgerError)
        for data in policy.data if policy is not None else ():
            attempt(lambda data=data: policy.dataset(data), LedgerError, ValueError)


def test_a_policy_keeps_both_caps(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_bytes(POLICY)
    share = Policy.read(path).ledger("cohort", "alice")
    assert isinstance(share, Ledger)


@FUZZ
@given(content=st.binary(max_size=200) | plain.map(lambda value: json.dumps(value).encode()))
def test_any_results_file_is_read_or_refused(content):
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "results.jsonl").write_bytes(content)
        rows = attempt(lambda: Results(name).rows(), ValueError)
        assert rows is None or isinstance(rows, list)


@pytest.fixture(scope="module")
def stream_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "s"
    learner = PrivateFTRL(2, 200, 1.0, 1e-2, method="sampling")
    learner.partial_fit(np.zeros((3, 2)))
    learner.save(path)
    return path.read_bytes()


@settings(FUZZ, max_examples=30)
@given(place=st.integers(0, 10**6), flip=st.booleans())
def test_cut_or_scribbled_streams_never_give_steps_back(stream_bytes, place, flip):
    """SQLite pages are cut or zeroed; what can still be opened has taken at least the steps that were saved."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "s"
        place %= len(stream_bytes)
        path.write_bytes(
            stream_bytes[:place] + bytes(64) + stream_bytes[place + 64 :] if flip else stream_bytes[:place]
        )
        with contextlib.suppress(StreamError, HorizonReached, ValueError):
            learner = PrivateFTRL.resume(path)
            assert learner.step >= 3
