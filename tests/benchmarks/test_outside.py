"""Tools of others: a second accountant that agrees, twins that it catches, a recorder that is a stub."""

import types

import numpy as np
import pytest

from benchmarks.attest import outside
from discreet.mechanisms.additive import GaussianMechanism
from discreet.mechanisms.samplers.entropy import fresh_entropy
from discreet.privacy import events
from discreet.privacy.events import (
    Approximate,
    Approximated,
    BoundedRange,
    Composed,
    Discretized,
    Gaussian,
    Grouped,
    Laplace,
    ObjectivePerturbation,
    OneOf,
    Pure,
    RandomTries,
    Repeated,
    Subsampled,
    ZeroConcentrated,
)
from discreet.privacy.guarantee import Neighboring, Sensitivity

REPLACED = Neighboring.REPLACE_ONE
EVENTS = {
    "gaussian": Discretized(Gaussian(2.0), 3),
    "descent": Repeated(Discretized(Gaussian(5.0), 2), 10),
    "pure": Repeated(Pure(0.2), 5),
    "choices": Repeated(BoundedRange(0.3), 8),
    "stable": Approximate(1.0, 0.005),
    "mixed": Composed((Pure(0.1), Gaussian(3.0))),
    "laplace": Approximated(Laplace(1.5), 1e-15),
    "samples": Repeated(Subsampled(Gaussian(2.0), 0.1), 5),
    "people": Grouped(Gaussian(6.0), 3),
    "objective": Discretized(ObjectivePerturbation("monotone", 4.0, 1e-3, 1.0, 0.01), 4),
    "softmax": ObjectivePerturbation("softmax", 6.0, 1e-3, 1.0, 0.01, n_outputs=3),
    "concentrated": ZeroConcentrated(0.1),
    "one part": OneOf((Gaussian(2.0), Pure(0.5)), 0.01, "replace-one"),
    "tries": RandomTries(Gaussian(4.0), "negative-binomial", 1.0, 1.0, 0.01, "replace-one"),
}
#: Of an event that covers many mechanisms, a second accountant knows one, which costs no more.
MANY = {"people", "objective", "softmax", "concentrated", "one part", "tries"}
#: Priced from below only.
BELOW = {"objective", "softmax"}


def classes_in(event):
    """Every class of events in a tree of them."""
    parts = [vars(event).get("event"), *vars(event).get("events", ())]
    return {type(event)}.union(*(classes_in(part) for part in parts if part is not None))


def test_every_class_of_events_is_priced_again():
    """But for what has no guarantee, whose price is infinite."""
    known = {
        kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)
    }
    priced = set().union(*map(classes_in, EVENTS.values()))
    assert known - priced == {events.Event, events.NonPrivate}


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Losses in larger steps, for speed: verdicts allow for them."""
    monkeypatch.setattr(outside, "INTERVAL", 2e-3)


@pytest.mark.parametrize("name", EVENTS)
def test_a_second_accountant_agrees_and_catches_half_of_the_noise(name):
    pytest.importorskip("dp_accounting")
    # Samples are priced for records that are there or not.
    relation = Neighboring.ZERO_OUT if name == "samples" else REPLACED
    found = outside.priced_again(name, EVENTS[name], 0.01, relation)
    assert found.verdict == "agrees", found
    assert found.caught, found
    assert (found.highest is None) == (name in BELOW)
    assert found.highest is None or found.lowest <= found.highest


@pytest.mark.parametrize("name", sorted(MANY - BELOW))
def test_twice_a_price_is_contradicted_from_above(name, monkeypatch):
    pytest.importorskip("dp_accounting")
    ours = outside.accountants.epsilon(EVENTS[name], 0.01, REPLACED)
    monkeypatch.setattr(outside.accountants, "epsilon", lambda *told: 2 * ours)
    assert outside.priced_again(name, EVENTS[name], 0.01, REPLACED).verdict == "contradicts"


def test_what_no_second_accountant_prices_from_above_says_so():
    pytest.importorskip("dp_accounting")
    unknown = RandomTries(Subsampled(Gaussian(4.0), 0.5), "negative-binomial", 1.0, 1.0, 0.01, "zero-out")
    for event in (EVENTS["objective"], unknown, OneOf((Gaussian(2.0), unknown), 0.01, "zero-out")):
        assert outside.second_opinion(event, 0.01, Neighboring.ZERO_OUT)[1] is None
    found = outside.priced_again("objective", EVENTS["objective"], 0.01, REPLACED)
    assert found.note == "from below only"


@pytest.mark.parametrize("name", sorted(MANY))
def test_half_of_a_price_is_contradicted_from_below(name, monkeypatch):
    pytest.importorskip("dp_accounting")
    ours = outside.accountants.epsilon(EVENTS[name], 0.01, REPLACED)
    monkeypatch.setattr(outside.accountants, "epsilon", lambda *told: ours / 2)
    assert outside.priced_again(name, EVENTS[name], 0.01, REPLACED).verdict == "contradicts"


def test_a_false_price_is_contradicted(monkeypatch):
    pytest.importorskip("dp_accounting")
    monkeypatch.setattr(outside.accountants, "epsilon", lambda *told: 0.9)
    assert outside.priced_again("gaussian", Gaussian(2.0), 0.01, REPLACED).verdict == "contradicts"


def test_what_has_no_counterpart_or_is_not_there_is_skipped_with_the_reason(monkeypatch):
    pytest.importorskip("dp_accounting")
    found = outside.priced_again("samples", Subsampled(Pure(1.0), 0.5), 0.01, REPLACED)
    assert (found.verdict, found.note) == ("skipped", "dp-accounting has no counterpart of Subsampled")
    monkeypatch.setattr(outside, "installed", lambda name: None)
    skipped = [outside.priced_again("pure", Pure(1.0), 0.0, REPLACED), *outside.noise_oracle()]
    skipped.append(outside.scored(next(outside.catalog.mechanisms())))
    skipped.append(outside.recorded(outside.mean_of, [0.0], [1.0]))
    assert {line.verdict for line in skipped} == {"skipped"}
    assert all("is not installed" in line.note for line in skipped)


class Auditor:
    """A recorder as small as can be: it freezes answers and compares inputs with what was declared."""

    now = None

    def __init__(self):
        self.mode, self.asked = None, {"record": [], "replay": []}

    def set_record(self):
        self.mode = "record"

    def set_replay(self):
        self.mode = "replay"

    def __enter__(self):
        Auditor.now = self

    def __exit__(self, *error):
        Auditor.now = None

    def validate_records(self):
        for one, two in zip(*self.asked.values(), strict=True):
            if one["metric"](one["value"], two["value"]) > one["sensitivity"]:
                raise ValueError("sensitivity exceeded")


def audit_spec(kind, input_arg, sensitivity_arg, metric_fn):
    def decorated(function):
        def called(**told):
            now = Auditor.now
            place = len(now.asked[now.mode])
            answer = function(**told) if now.mode == "record" else now.asked["record"][place]["answer"]
            asked = {"value": told[input_arg], "sensitivity": told[sensitivity_arg], "answer": answer}
            now.asked[now.mode].append({**asked, "metric": metric_fn})
            return answer

        return called

    return decorated


STUB = types.SimpleNamespace(Auditor=Auditor, audit_spec=audit_spec)


def test_a_recorder_replays_our_mechanisms_and_catches_a_sensitivity_that_is_too_small():
    first, second = np.array([1.0, 0.5]), np.array([0.0, 0.5])
    assert outside.recorded(outside.mean_of, first, second, STUB).verdict == "agrees"

    def halved(data):
        return GaussianMechanism(Sensitivity(0.5), 2.0, 1).release([float(np.sum(data))], fresh_entropy())

    found = outside.recorded(halved, first, second, STUB)
    assert (found.verdict, found.note) == ("contradicts", "ValueError: sensitivity exceeded")
    assert GaussianMechanism.release.__name__ == "release"
    assert GaussianMechanism.release.__module__ == "discreet.mechanisms.additive"


def test_an_oracle_knows_our_noise():
    pytest.importorskip("opendp")
    found = list(outside.noise_oracle(4000))
    assert [line.verdict for line in found] == ["agrees"] * 2
    assert all(line.caught for line in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(outside._SCORED))
def test_an_auditor_of_scores_sees_no_more_than_was_promised_and_catches_the_twin(name):
    """Of a choice between two the scores have two values: no threshold that a part of the runs chooses shows it."""
    pytest.importorskip("jax_privacy")
    found = outside.scored(next(part for part in outside.catalog.mechanisms() if part.name == name))
    assert found.verdict == "agrees"
    assert found.caught
