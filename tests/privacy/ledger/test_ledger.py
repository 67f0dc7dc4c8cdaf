"""The ledger keeps its cap, whatever is charged and however it is opened."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.privacy.accounting import accountants
from discreet.privacy.accounting.gaussian import hockey_stick
from discreet.privacy.events import (
    Approximate,
    Approximated,
    Composed,
    Discretized,
    Event,
    Gaussian,
    Grouped,
    Laplace,
    NonPrivate,
    Pure,
    Repeated,
    Subsampled,
)
from discreet.privacy.guarantee import Neighboring
from discreet.privacy.ledger import file, sqlite
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger, LedgerError
from discreet.privacy.ledger.rules import MOST_VARIATES

REPLACE_ONE = Neighboring.REPLACE_ONE


class TestOpening:
    def test_created_once_then_opened_with_or_without_its_cap(self, path: Path) -> None:
        first = Ledger(path, epsilon=1.5, delta=1e-6, neighboring="zero-out", adaptive=False)
        for again in (Ledger(path), Ledger(str(path), epsilon=1.5), Ledger(path, 1.5, 1e-6, adaptive=False)):
            assert again == first
            assert (again.epsilon, again.delta, again.neighboring.value, again.adaptive) == (
                1.5,
                1e-6,
                "zero-out",
                False,
            )
        assert list(path.parent.iterdir()) == [path]  # neither drafts nor journals are left behind

    @pytest.mark.parametrize(
        ("other", "both"),
        [
            ({"epsilon": 2.0}, ("1.0", "2.0")),
            ({"delta": 1e-5}, ("1e-06", "1e-05")),
            ({"neighboring": "zero-out"}, ("'replace-one'", "'zero-out'")),
            ({"adaptive": False}, ("True", "False")),
        ],
    )
    def test_other_terms_are_refused_naming_both(
        self, path: Path, other: dict[str, Any], both: tuple[str, str]
    ) -> None:
        Ledger(path, 1.0, 1e-6)
        with pytest.raises(LedgerError) as error:
            Ledger(path, **other)
        assert all(f"{next(iter(other))}={value}" in str(error.value) for value in both)

    @pytest.mark.parametrize("cap", [{}, {"epsilon": 1.0}, {"delta": 1e-6}])
    def test_a_new_ledger_needs_its_whole_cap(self, path: Path, cap: dict[str, float]) -> None:
        with pytest.raises(LedgerError, match=r"no ledger at .* both epsilon and delta"):
            Ledger(path, **cap)
        assert not path.exists()

    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(-1.0, 0.0), (math.nan, 0.0), (math.inf, 0.0), (1.0, 1.0)]
    )
    def test_impossible_caps(self, path: Path, epsilon: float, delta: float) -> None:
        with pytest.raises(ValueError):
            Ledger(path, epsilon, delta)
        assert not path.exists()

    def test_created_by_many_at_once(self, path: Path) -> None:
        ledgers: list[Ledger] = []
        threads = [threading.Thread(target=lambda: ledgers.append(Ledger(path, 1.0, 0.0))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for ledger in ledgers:
            ledger.charge(Pure(0.125))  # would be refused by an object that had opened another file
        assert len(ledgers) == len(Ledger(path).history()) == 8
        assert list(path.parent.iterdir()) == [path]

    def test_places_that_cannot_hold_a_ledger(self, tmp_path: Path) -> None:
        with pytest.raises(LedgerError, match="does not exist; create it"):
            Ledger(tmp_path / "missing" / "budget.ledger", 1.0, 0.0)
        with pytest.raises(LedgerError, match="is a directory"):
            Ledger(tmp_path, 1.0, 0.0)
        with pytest.raises(LedgerError, match="outlive its process"):
            Ledger(":memory:", 1.0, 0.0)

    def test_a_directory_that_refuses_files(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        connect = sqlite.connect
        monkeypatch.setattr(sqlite, "connect", lambda where, mode: connect(Path("/proc") / where.name, mode))
        with pytest.raises(LedgerError, match="cannot be opened"):
            Ledger(path, 1.0, 0.0)
        assert not list(path.parent.iterdir())

    @pytest.mark.parametrize("name", ["a b#c?d%20.ledger", "büdget's.ledger"])
    def test_awkward_names(self, tmp_path: Path, name: str) -> None:
        Ledger(tmp_path / name, 1.0, 0.0).charge(Pure(0.5))
        assert len(Ledger(tmp_path / name).history()) == 1
        assert [found.name for found in tmp_path.iterdir()] == [name]

    def test_without_hard_links(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError("no hard links here")

        monkeypatch.setattr(os, "link", refuse)
        Ledger(path, 1.0, 0.0).charge(Pure(0.5))
        assert len(Ledger(path).history()) == 1


class TestCharging:
    def test_pure_sums_are_exact(self, path: Path) -> None:
        ledger = Ledger(path, epsilon=0.3, delta=0.0)
        for _ in range(3):
            ledger.charge(Pure(0.1))
        assert ledger.spent().epsilon == 0.3
        with pytest.raises(BudgetExceeded):
            ledger.charge(Pure(1e-12))

    def test_what_is_recorded(self, pure: Ledger) -> None:
        event = Composed((Repeated(Laplace(8.0), 3), Approximated(Pure(0.25), 0.0)))
        charge = pure.charge(event, label="means – 2024", neighboring="replace-one")
        assert Ledger(pure.path).history() == [charge]
        assert (charge.sequence, charge.label, charge.event, charge.closes) == (
            1,
            "means – 2024",
            event,
            False,
        )
        assert charge.time.endswith("+00:00")
        assert "means" in str(charge)
        assert pure.spent().epsilon == 3 / 8 + 0.25

    def test_refusal_says_what_is_left_and_writes_nothing(self, pure: Ledger) -> None:
        pure.charge(Pure(0.75))
        before = pure.path.read_bytes()
        with pytest.raises(BudgetExceeded) as refusal:
            pure.charge(Pure(0.5), label="too much")
        for part in (
            "'too much'",
            "epsilon 0.5 alone",
            "0.75",
            "0.25",
            "epsilon 1 at delta 0",
        ):
            assert part in str(refusal.value)
        assert pure.path.read_bytes() == before
        pure.charge(Pure(0.25))

    def test_another_relation_is_refused(self, pure: Ledger) -> None:
        with pytest.raises(LedgerError, match=r"replace-one.*zero-out"):
            pure.charge(Pure(0.1), neighboring="zero-out")
        assert pure.history() == []

    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    @pytest.mark.parametrize("adaptive", [True, False])
    @pytest.mark.parametrize(
        "event", [NonPrivate(), Composed((Pure(0.1), NonPrivate())), Approximate(0.1, 1.0)]
    )
    def test_no_guarantee_never_fits(self, path: Path, event: Event, delta: float, adaptive: bool) -> None:
        ledger = Ledger(path, 1.0, delta, adaptive=adaptive)
        with pytest.raises(BudgetExceeded, match="infinity alone"):
            ledger.charge(event)

    @pytest.mark.parametrize("adaptive", [True, False])
    def test_as_many_charges_fit_as_are_foretold(self, path: Path, adaptive: bool) -> None:
        ledger, event = Ledger(path, 1.0, 1e-6, adaptive=adaptive), Gaussian(20.0)
        foretold = ledger.further(event)  # before the first charge, which may close an adaptive ledger
        for left in range(foretold, 0, -1):
            assert ledger.further(event) == left
            ledger.charge(event)
        with pytest.raises(BudgetExceeded):
            ledger.charge(event)

    def test_what_is_not_an_event(self, pure: Ledger) -> None:
        with pytest.raises(TypeError, match="Event"):
            pure.charge(0.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="label"):
            pure.charge(Pure(0.5), label=3)  # type: ignore[arg-type]

    def test_the_clock_is_only_a_remark(self, pure: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        for now in (2e9, 1e9, 1e9, 3e9):
            monkeypatch.setattr(file.time, "time", lambda now=now: now)
            pure.charge(Pure(0.25))
        history = Ledger(pure.path).history()
        assert [charge.sequence for charge in history] == [1, 2, 3, 4]
        assert [charge.time[:4] for charge in history] == ["2033", "2001", "2001", "2065"]
        with pytest.raises(BudgetExceeded):
            pure.charge(Pure(0.25))


class TestAdaptiveSizes:
    def test_first_charge_may_take_everything_and_closes(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 1e-6)
        everything = Gaussian(ledger.remaining().noise_multiplier)
        assert ledger.remaining().epsilon == pytest.approx(1.0, rel=1e-6)
        assert ledger.charge(everything).closes
        assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)
        for reader in (ledger, Ledger(path)):
            assert reader.remaining().closed
            assert reader.remaining().epsilon == reader.remaining().pure_epsilon == 0
            assert "first charge took the whole cap" in str(reader.remaining())
            with pytest.raises(BudgetExceeded, match="closed it"):
                reader.charge(Gaussian(1e6))

    def test_a_second_charge_never_gets_the_exact_price(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 1e-6)
        everything = Gaussian(ledger.remaining().noise_multiplier * 1.0001)
        ledger.charge(Gaussian(1e6))
        with pytest.raises(BudgetExceeded):
            ledger.charge(everything)

    def test_fixed_sizes_are_priced_more_tightly(self, tmp_path: Path) -> None:
        event, counts = Gaussian(15.0), {}
        for adaptive in (True, False):
            ledger = Ledger(tmp_path / str(adaptive), 1.0, 1e-6, adaptive=adaptive)
            for _ in range(20):
                with contextlib.suppress(BudgetExceeded):
                    ledger.charge(event)
            counts[adaptive] = len(ledger.history())
            if not adaptive:
                exact = accountants.delta(Repeated(event, counts[adaptive]), 1.0, REPLACE_ONE)
                beyond = accountants.delta(Repeated(event, counts[adaptive] + 1), 1.0, REPLACE_ONE)
                assert exact <= 1e-6 < beyond
        assert 0 < counts[True] < counts[False]

    @pytest.mark.parametrize("adaptive", [True, False])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_what_remains_can_be_charged_and_more_cannot(
        self, tmp_path: Path, adaptive: bool, delta: float
    ) -> None:
        def half_used(name: str) -> Ledger:
            ledger = Ledger(tmp_path / name, 1.0, delta, adaptive=adaptive)
            ledger.charge(Pure(0.25))
            ledger.charge(Pure(0.125))
            return ledger

        one, two = half_used("one"), half_used("two")
        remaining = one.remaining()
        assert remaining.pure_epsilon >= 0.625 * (1 - 1e-8)
        exact = adaptive or delta == 0  # for fixed sizes with a delta, what remains may be an under-estimate
        if exact:
            with pytest.raises(BudgetExceeded):
                one.charge(Pure(remaining.pure_epsilon * (1 + 1e-6)))
        one.charge(Pure(remaining.pure_epsilon))
        if delta == 0:
            assert math.isinf(remaining.noise_multiplier)
            assert remaining.epsilon == remaining.pure_epsilon
        else:
            if exact:
                with pytest.raises(BudgetExceeded):
                    two.charge(Gaussian(remaining.noise_multiplier * (1 - 1e-6)))
            two.charge(Gaussian(remaining.noise_multiplier))

    def test_inexact_sampling_is_paid_for(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 1e-6)
        ledger.charge(Approximated(Gaussian(50.0), 1e-12))
        ledger.charge(Approximated(Gaussian(50.0), 1e-12))
        with pytest.raises(BudgetExceeded):
            ledger.charge(Approximated(Gaussian(50.0), 1e-7))

    def test_noise_on_a_grid_is_paid_for(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 1e-6)
        ledger.charge(Discretized(Gaussian(50.0), 1000))
        ledger.charge(Discretized(Gaussian(50.0), MOST_VARIATES - 1000))
        with pytest.raises(BudgetExceeded):
            ledger.charge(Discretized(Gaussian(1e6), 1))

    def test_an_event_without_a_proof(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 1e-6)
        for _ in range(2):
            with pytest.raises(accountants.UnsupportedEvent, match="no privacy proof"):
                ledger.charge(Subsampled(Gaussian(5.0), 0.1))
            ledger.charge(Gaussian(100.0))

    def test_unequal_kinds_share_one_budget(self, path: Path) -> None:
        ledger = Ledger(path, 1.0, 1e-6)
        for event in (Gaussian(30.0), Laplace(40.0), Approximate(0.01, 1e-9), Pure(0.01)):
            ledger.charge(event)
        assert 0 < ledger.spent().epsilon <= 1

    def test_empty_ledger(self, path: Path) -> None:
        spent = Ledger(path, 1.0, 1e-6).spent()
        assert (spent.epsilon, spent.delta, spent.n_charges, str(spent)) == (0.0, 1e-6, 0, "nothing spent")

    def test_spending_grows_and_stays_below_the_cap(self, path: Path) -> None:
        ledger, seen = Ledger(path, 2.0, 1e-5), [0.0]
        for noise in (40.0, 20.0, 80.0, 20.0, 15.0):
            ledger.charge(Gaussian(noise))
            seen.append(ledger.spent().epsilon)
        assert seen == sorted(seen)
        assert seen[-1] <= 2.0
        assert ledger.spent(1e-9).epsilon > ledger.spent(1e-5).epsilon
        assert math.isinf(ledger.spent(0.0).epsilon)


KINDS = st.one_of(
    st.floats(0.01, 0.6).map(Pure),
    st.floats(3.0, 80.0).map(Laplace),
    st.floats(5.0, 200.0).map(Gaussian),
    st.tuples(st.floats(0.0, 0.3), st.sampled_from([0.0, 1e-9, 1e-7])).map(lambda pair: Approximate(*pair)),
    st.floats(5.0, 200.0).map(lambda noise: Approximated(Gaussian(noise), 1e-13)),
)


def delta_of_worst_mechanisms(events: list[Event], epsilon: float) -> float:
    """The exact delta of concrete mechanisms that the events describe: no valid price is below it.

    Randomized responses stand for pure events, thresholded Laplace noise for Laplace; an approximate event
    reveals everything with probability delta. All two-valued losses are enumerated, the Gaussian loss is
    integrated exactly.
    """
    losses, chances, revealed, mu_squared = np.zeros(1), np.ones(1), 0.0, 0.0
    for event in (e.event if isinstance(e, Approximated) else e for e in events):
        if isinstance(event, Gaussian):
            mu_squared += event.noise_multiplier**-2
            continue
        if isinstance(event, Laplace):
            loss = math.log(2 * math.exp(0.5 / event.noise_multiplier) - 1)
        else:
            assert isinstance(event, Pure | Approximate)
            loss = event.epsilon
        if isinstance(event, Approximate):
            revealed += (1 - revealed) * event.delta
        up = 1 / (1 + math.exp(-loss))
        losses = np.concatenate([losses + loss, losses - loss])
        chances = np.concatenate([chances * up, chances * (1 - up)])
    excess = hockey_stick(epsilon - losses, mu_squared / 2, math.sqrt(mu_squared))
    return revealed + (1 - revealed) * float(chances @ excess)


class TestAnySequence:
    """Whatever is charged, concrete mechanisms with exactly these sizes stay under the cap."""

    @settings(max_examples=25, deadline=None)
    @given(st.lists(KINDS, max_size=12), st.sampled_from([0.0, 1e-6]))
    def test_never_above_the_cap(self, events: list[Event], delta: float) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ledger, refused = Ledger(Path(folder) / "ledger", 1.0, delta), 0
            for event in events:
                try:
                    ledger.charge(event)
                except BudgetExceeded:
                    refused += 1
            history = [charge.event for charge in ledger.history()]
            assert len(history) + refused == len(events)
            assert delta_of_worst_mechanisms(history, 1.0) <= delta + 1e-14
            assert ledger.spent().epsilon <= 1.0

    @pytest.mark.parametrize("event", [Gaussian(5.0), Pure(0.6), Laplace(1.5), Approximate(0.1, 0.6e-6)])
    def test_forgetting_the_first_charge_would_be_noticed(self, event: Event) -> None:
        assert (
            delta_of_worst_mechanisms([event], 1.0) <= 1e-6 < delta_of_worst_mechanisms([event, event], 1.0)
        )


@pytest.mark.parametrize(
    ("relation", "ledger_unit", "charge_unit", "admitted"),
    [
        ("replace-one", "record", "record", True),
        ("replace-one", "record", "user", True),  # replacing a row is one way of replacing a person's rows
        ("replace-one", "user", "record", False),
        ("replace-one", "user", "user", True),
        ("zero-out", "record", "user", False),  # blanking one of two rows is not blanking both
        ("add-remove-one", "record", "user", False),
        ("add-remove-one", "user", "user", True),
    ],
)
def test_a_cap_is_about_rows_or_about_people(tmp_path, relation, ledger_unit, charge_unit, admitted):
    ledger = Ledger(tmp_path / "b.ledger", 1.0, 1e-6, neighboring=relation, unit=ledger_unit)
    assert ledger.guarantee.unit == ledger_unit
    if admitted:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            ledger.charge(Gaussian(10.0), unit=charge_unit)
        assert len(heard) == (charge_unit != ledger_unit)  # of people where rows are capped
    else:
        with pytest.raises(LedgerError, match=f"per {ledger_unit} and the charge is per {charge_unit}"):
            ledger.charge(Gaussian(10.0), unit=charge_unit)
    assert len(Ledger(tmp_path / "b.ledger", unit=ledger_unit).history()) == admitted
    other = "user" if ledger_unit == "record" else "record"
    with pytest.raises(LedgerError, match="was created with unit="):
        Ledger(tmp_path / "b.ledger", unit=other)


def test_a_second_ledger_is_no_advice_for_the_same_people(tmp_path):
    people = Ledger(tmp_path / "people", 1.0, 1e-6, unit="user")
    with pytest.raises(LedgerError, match=r"Pass groups=.* a second budget .* adds up"):
        people.charge(Gaussian(10.0), unit="record")
    rows = Ledger(tmp_path / "rows", 1.0, 1e-6, neighboring="zero-out")
    with pytest.raises(LedgerError, match=r"without groups=.* a second budget"):
        rows.charge(Gaussian(10.0), unit="user")


class TestRefusals:
    """A refusal says which of epsilon and delta binds, and a number that would be admitted."""

    def refusal(self, ledger: Ledger, event: Event) -> str:
        with pytest.raises(BudgetExceeded) as refused:
            ledger.charge(event)
        return str(refused.value)

    def told(self, message: str) -> float:
        return float(re.search(r"up to ([0-9.e-]+)", message)[1])

    def test_epsilon_binds(self, path: Path) -> None:
        ledger = Ledger(path, epsilon=3.0, delta=1e-6)
        ledger.charge(Gaussian(5.0))
        for event in (Gaussian(0.5), Pure(3.5), Approximate(4.0, 1e-9)):
            assert "Not enough epsilon remains: ask for less" in self.refusal(ledger, event)

    def test_epsilon_binds_where_no_noise_is_enough(self, path: Path) -> None:
        ledger = Ledger(path, epsilon=1.0, delta=1e-6)
        ledger.charge(Pure(1.0))  # whose Renyi divergence leaves nothing for others
        assert "Not enough epsilon remains for this kind of release" in self.refusal(ledger, Gaussian(1e6))

    @pytest.mark.parametrize("adaptive", [True, False])
    @pytest.mark.parametrize("first", [Gaussian(50.0), Approximate(0.5, 1e-7)])
    def test_as_much_delta_as_is_told_is_admitted(self, path: Path, first: Event, adaptive: bool) -> None:
        ledger = Ledger(path, epsilon=3.0, delta=1e-6, adaptive=adaptive)
        ledger.charge(first)
        message = self.refusal(ledger, Approximate(1.0, 5e-6))
        assert "Not enough delta remains: this charge spends 5e-06 outright" in message
        told = self.told(message)
        assert told > 1e-8
        assert ledger.admits(Approximate(1.0, told))
        if adaptive:  # fixed sizes are told by the quick accountants, and more may fit
            assert not ledger.admits(Approximate(1.0, told * 1.02))

    def test_noise_cannot_pay_for_deltas_that_are_gone(self, path: Path) -> None:
        ledger = Ledger(path, epsilon=3.0, delta=1e-6)
        ledger.charge(Approximate(1.0, 1e-7))
        assert "no Gaussian noise fits any more" in str(ledger.remaining())
        assert not ledger.admits(Gaussian(1e6))
        message = self.refusal(ledger, Composed((Gaussian(5.0), Repeated(Gaussian(90.0), 3))))
        assert "Delta is the limit, not epsilon: earlier charges spent 1e-07" in message
        assert "adaptive=False (--fixed-sizes) counts tighter" in message
        told = self.told(message)
        assert ledger.admits(Approximate(1.0, told))
        assert not ledger.admits(Approximate(0.0, told * 1.02))

    def test_the_share_that_the_page_tells(self, path: Path) -> None:
        ledger = Ledger(path, epsilon=3.0, delta=1e-6)
        ledger.charge(Approximate(1.0, 1e-6 / 48))
        assert ledger.admits(Gaussian(20.0))
        ledger.charge(Approximate(0.1, 1e-9))
        assert not ledger.admits(Gaussian(20.0))

    def test_where_delta_is_gone_or_none_was_given(self, pure: Ledger, tmp_path: Path) -> None:
        assert "the cap has delta = 0" in self.refusal(pure, Gaussian(50.0))
        assert "no privacy guarantee" in self.refusal(pure, NonPrivate())
        pure.charge(Pure(0.1))
        assert "only as the first charge" in self.refusal(pure, Grouped(Pure(0.1), 2))
        ledger = Ledger(tmp_path / "other", epsilon=3.0, delta=1e-6)
        ledger.charge(Gaussian(2.5))
        message = self.refusal(ledger, Approximate(2.9, 1e-3))
        assert "even with an epsilon near 0 only up to" in message
        assert ledger.admits(Approximate(0.0, self.told(message)))


def test_an_unknown_unit_makes_no_ledger(tmp_path):
    with pytest.raises(ValueError, match="unit must be 'record', 'user'"):
        Ledger(tmp_path / "b.ledger", 1.0, 1e-6, unit="household")
    assert not (tmp_path / "b.ledger").exists()


def test_the_seal_of_a_ledger_of_rows_is_that_of_older_files():
    terms = file.Terms(1.0, 0.0, Neighboring.REPLACE_ONE, True, None, "id", "now")
    assert "unit" not in terms.to_dict()
    assert terms.seal != dataclasses.replace(terms, unit="user").seal
