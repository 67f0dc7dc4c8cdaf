"""Hostile events: what is admitted is priced at few points, and what a search of this library runs is admitted."""

import math

import pytest

from discreet.card import files as pricing
from discreet.card.card import CardError
from discreet.card.files import MOST_WORK, check_size, recomputed, work
from discreet.privacy.accounting import accountants
from discreet.privacy.events import (
    BoundedRange,
    Composed,
    Gaussian,
    Grouped,
    Laplace,
    ObjectivePerturbation,
    OneOf,
    Pure,
    RandomTries,
    Repeated,
)
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.privacy.statement import PrivacyStatement

RELATION = Neighboring.REPLACE_ONE


def objectives(count):
    return tuple(ObjectivePerturbation("logistic", 17.0 + i, 0.05, 0.25, 0.007) for i in range(count))


def softmaxes(count):
    return tuple(ObjectivePerturbation("softmax", 17.0 + i, 0.05, 0.25, 0.007, 10) for i in range(count))


def one_of(events):
    return OneOf(tuple(events), 1e-6, RELATION.value)


def tries(event):
    return RandomTries(event, "negative-binomial", 1.0, 20.0, 1e-6, RELATION.value)


def claimed(event, epsilon=1.0, delta=1e-6):
    return PrivacyStatement(Guarantee(epsilon, delta, RELATION), event, "a mechanism", "a theorem")


@pytest.mark.parametrize(
    "event",
    [
        Composed(tuple(Laplace(1000.0 + i) for i in range(3000))),
        Composed(tuple(BoundedRange(0.001 + i / 1e6) for i in range(1500))),
        Composed(objectives(8)),
        ObjectivePerturbation("logistic", 17.0, 0.05, 0.25, 0.007, 100),
        Grouped(objectives(1)[0], 10**12),
        Repeated(Laplace(5000.0), 2**21),
        tries(one_of(softmaxes(200))),
        tries(one_of(Repeated(Laplace(5000.0 + i), 10**6) for i in range(4))),
        one_of(one_of(Composed((part, Laplace(i + 1.0))) for part in objectives(4)) for i in range(4)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_would_take_long_is_refused(event):
    assert work(event) > MOST_WORK


@pytest.mark.parametrize("wrapped", [one_of, lambda parts: tries(one_of(parts))])
@pytest.mark.parametrize(
    "parts", [objectives(140), softmaxes(60), tuple(Gaussian(3.0 + i) for i in range(1000))]
)
def test_searches_with_many_candidates_are_admitted(wrapped, parts):
    assert work(wrapped(parts)) <= MOST_WORK


def test_many_runs_are_compared_and_not_searched_for(monkeypatch):
    event = Repeated(Laplace(5000.0), 10**6)
    monkeypatch.setattr(pricing.accountants, "epsilon", lambda *_: pytest.fail("a search"))
    monkeypatch.setattr(pricing.accountants, "delta", lambda *_: 1e-7)
    assert work(event) <= MOST_WORK
    assert recomputed(claimed(event)) == 1.0


@pytest.mark.parametrize("event", [Pure(30.0), BoundedRange(30.0), Laplace(1 / 30)], ids=str)
def test_large_losses_are_compared_and_not_searched_for(event, monkeypatch):
    """A distribution of large losses has so many points that 35 of them would take minutes."""
    both = Composed((event, Pure(27.0)))
    monkeypatch.setattr(pricing.accountants, "epsilon", lambda *_: pytest.fail("a search"))
    monkeypatch.setattr(pricing.accountants, "delta", lambda *_: 1e-7)
    assert recomputed(claimed(both)) == 1.0
    assert work(Composed(tuple(Pure(30.0 + i) for i in range(8)))) > MOST_WORK
    assert work(Pure(30.0)) < 0.01


def test_what_has_no_price_is_refused_in_words():
    event = ObjectivePerturbation("general", 7.0, 0.05, 0.25, 0.007, 900)
    check_size(claimed(event))
    with pytest.raises(CardError, match="no price"):
        recomputed(claimed(event))


def test_alternatives_cost_what_the_dearest_does():
    parts = [Gaussian(4.0), Laplace(2.5), objectives(1)[0], Gaussian(3.0)]
    dearest = max(accountants.epsilon(part, 1e-6, RELATION) for part in parts)
    assert accountants.epsilon(one_of(parts), 1e-6, RELATION) == pytest.approx(dearest, rel=1e-9)
    assert accountants.epsilon(one_of(parts[::-1]), 1e-6, RELATION) == pytest.approx(dearest, rel=1e-9)
    assert math.isfinite(dearest)
