"""Event trees survive storage exactly, and refuse what is malformed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Laplace,
    Leaves,
    NonPrivate,
    ObjectivePerturbation,
    Pure,
    Repeated,
    Subsampled,
    ZeroConcentrated,
    flatten,
    leaves_of,
)

positive = st.floats(1e-6, 1e6)
leaves = st.one_of(
    st.builds(NonPrivate),
    st.builds(Gaussian, positive),
    st.builds(Laplace, positive),
    st.builds(Pure, positive),
    st.builds(Approximate, st.floats(0, 10), st.floats(0, 1)),
    st.builds(BoundedRange, positive),
    st.builds(ZeroConcentrated, positive),
    st.builds(
        ObjectivePerturbation,
        st.sampled_from(["logistic", "monotone", "general", "softmax"]),
        positive,
        positive,
        positive,
        st.floats(0, 1),
        st.integers(1, 20),
    ),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Approximated, inner, st.floats(0, 1)),
        st.builds(Discretized, inner, st.integers(1, 10**6)),
        st.builds(Subsampled, inner, st.floats(0, 1)),
        st.builds(Repeated, inner, st.integers(1, 1000)),
        st.builds(Composed, st.lists(inner, max_size=4).map(tuple)),
    ),
    max_leaves=8,
)


@given(trees)
def test_round_trip_through_json(event: Event) -> None:
    again = Event.from_dict(json.loads(json.dumps(event.to_dict())))
    assert again == event
    assert hash(again) == hash(event)
    assert again.to_dict() == event.to_dict()


@given(trees)
def test_flattening_keeps_every_run(event: Event) -> None:
    def runs(node: Event) -> int:
        if isinstance(node, Repeated):
            return node.times * runs(node.event)
        if isinstance(node, Composed):
            return sum(map(runs, node.events))
        return 1

    assert sum(times for _, times in flatten(event)) == runs(event)
    assert not any(isinstance(leaf, Repeated | Composed) for leaf, _ in flatten(event))


OBJECTIVE = ObjectivePerturbation("logistic", 2.0, 0.1, 0.25, 0.01).to_dict()


def test_the_description_that_is_spoiled_below_is_read() -> None:
    assert Event.from_dict(OBJECTIVE).to_dict() == OBJECTIVE


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kind": "Sorcery"},
        {"kind": "Gaussian"},
        {"kind": "Gaussian", "noise_multiplier": -1.0},
        {"kind": "Gaussian", "noise_multiplier": 0},
        {"kind": "Gaussian", "noise_multiplier": "1"},
        {"kind": "Gaussian", "noise_multiplier": True},
        {"kind": "Gaussian", "noise_multiplier": float("nan")},
        {"kind": "Gaussian", "noise_multiplier": 10**400},
        {"kind": "Gaussian", "noise_multiplier": 1.0, "surprise": 2},
        {"kind": "Approximate", "epsilon": 1.0, "delta": 1.5},
        {"kind": "Approximate", "epsilon": -1.0, "delta": 0.5},
        {"kind": "Repeated", "event": {}, "times": 2},
        {"kind": "Repeated", "event": "Gaussian", "times": 2},
        {"kind": "Repeated", "event": None, "times": 2},
        {"kind": "Repeated", "times": 2},
        {"kind": "Subsampled", "event": {}, "rate": 2.0},
        {"kind": "Composed", "events": [1, 2]},
        {"kind": "Composed", "events": "ab"},
        {"kind": "Discretized", "event": 1.0, "variates": 1},
        {**OBJECTIVE, "n_outputs": 0.5},
        {**OBJECTIVE, "n_outputs": math.inf},
        {**OBJECTIVE, "output_mu": 1e308},
        {"kind": ["Gaussian"]},
        "Gaussian",
        None,
    ],
)
def test_malformed_descriptions_are_refused(fields: Any) -> None:
    with pytest.raises(ValueError):
        Event.from_dict(fields)


@pytest.mark.parametrize("times", [0, -1, 1.5, True, "2"])
def test_repetitions_are_whole_numbers(times: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        Repeated(Gaussian(1.0), times)


def test_unknown_sampling_and_family_are_refused() -> None:
    with pytest.raises(ValueError, match="scheme"):
        Subsampled(Gaussian(1.0), 0.1, "shuffled")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="family"):
        ObjectivePerturbation("quantum", 1.0, 1.0, 1.0, 0.0)  # type: ignore[arg-type]


def test_slips_add_over_parts_and_repetitions() -> None:
    inner = Composed((Approximated(Gaussian(1.0), 1e-6), Approximated(Repeated(Pure(0.1), 3), 1e-7)))
    assert leaves_of(Repeated(inner, 5)) == Leaves(
        ((Gaussian(1.0), 5), (Pure(0.1), 15)), pytest.approx(5 * (1e-6 + 1e-7), rel=1e-15)
    )
    sampled = Subsampled(Approximated(Gaussian(1.0), 1e-6), 0.5)
    assert leaves_of(sampled) == Leaves(((Subsampled(Gaussian(1.0), 0.5), 1),), 1e-6)


def test_parts_that_reveal_nothing_are_dropped_and_those_without_guarantee_are_not() -> None:
    nothing = Composed(
        (Gaussian(float("inf")), Subsampled(Pure(1.0), 0.0), Approximate(0.0, 0.0), Composed(()))
    )
    assert leaves_of(nothing) == Leaves()
    assert leaves_of(Subsampled(Gaussian(2.0), 1.0)) == leaves_of(Gaussian(2.0))
    for event in (NonPrivate(), Pure(float("inf")), Approximate(1.0, 1.0), Repeated(NonPrivate(), 2)):
        assert not leaves_of(Composed((Gaussian(1.0), event))).private
