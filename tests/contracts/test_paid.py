"""Paid: everything that an object, a statement, a file or a page shows is public, released or paid for.

Each program of `releases` runs on two data sets that have nothing in common but what is public, with the same answers
of all mechanisms, or with the same release. Whatever it shows afterwards must be equal to the last bit.
"""

import copy
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import releases

from discreet import Ledger, release
from discreet.audit.trace import difference, frozen, trace
from discreet.card.card import FAMILIES, Card
from discreet.card.page import to_html
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.privacy.statement import PrivacyStatement

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # so few records are mostly noise

STREAMS = {
    name for name in releases.PROGRAMS if name.startswith(("PrivateFTRL", "PrivateOnline", "PrivateLabeler"))
}


def unrelated(name):
    """Data of the same shape and type, far away; with rows that are no rows, where they may be."""
    rng = np.random.default_rng(1)
    X = rng.choice([-1.0, 1.0], size=(releases.N, releases.P)) * np.exp(rng.normal(size=(releases.N, 1)) * 5)
    y = rng.choice([-1.0, 0.3, 1.0], size=releases.N)
    if name not in releases.STRICT:
        X[::7], y[::5] = np.nan, np.nan
    return X, y


def statements(published):
    """The statements in what a program gives out."""
    found = published if isinstance(published, tuple) else (published,)
    found = [getattr(part, "privacy_", part) for part in found]
    return [part for part in found if isinstance(part, PrivacyStatement)]


def shown(published):
    """All that is to be seen of what a program gives out, private attributes included."""
    told = [(str(one), one.to_dict()) for one in statements(published)]
    assert told
    card = Card.of(published).to_dict() if type(published).__name__ in FAMILIES else None
    reported = hasattr(published, "metrics") or hasattr(published, "tables")
    page = published._repr_html_() if hasattr(published, "tables") else None
    return [published, told, card, str(published) if reported else None, page]


@pytest.mark.parametrize("name", releases.PROGRAMS)
def test_equal_answers_show_equal_things(name, tmp_path):
    """Attributes, statements, files and, where there are some, pages."""

    def program(data):
        published = releases.PROGRAMS[name](data)
        if type(published).__name__ not in FAMILIES:
            return shown(published)
        to_html(published, tmp_path / "page.html")
        return [*shown(published), (tmp_path / "page.html").read_bytes()]

    one = trace(program, releases.ordinary(0))
    two = trace(program, unrelated(name), answers=one.calls)
    assert one.error is None
    assert two.error is None
    assert one.calls
    assert [call.public for call in one.calls] == [call.public for call in two.calls]
    assert any(not np.array_equal(a.value, b.value) for a, b in zip(one.calls, two.calls, strict=True))
    assert difference(one.state, two.state) is None
    assert one.warnings == two.warnings


@pytest.mark.parametrize("name", sorted(set(releases.PROGRAMS) - STREAMS))
def test_equal_releases_show_equal_things(name, monkeypatch):
    """Also where the release is no answer of a mechanism: outside of `release.run` the data leave no trace."""
    kept, run = [], release.run
    with insecure_noise(0), monkeypatch.context() as patched:
        patched.setattr(release, "run", lambda *parts: kept.append(copy.deepcopy(run(*parts))) or kept[-1])
        one = frozen(shown(releases.PROGRAMS[name](releases.ordinary(0))))
    answers = iter(kept)
    with insecure_noise(0), monkeypatch.context() as patched:
        patched.setattr(release, "run", lambda *parts: (run(*parts), next(answers))[1])
        two = frozen(shown(releases.PROGRAMS[name](unrelated(name))))
    assert difference(one, two) is None


@pytest.mark.parametrize("name", releases.PROGRAMS)
def test_every_statement_names_the_charge_that_paid(name, tmp_path, monkeypatch):
    receipts, charge, numbers = [], release.charge, itertools.count()

    def paid(ledger, plan, label):
        assert ledger is None
        terms = {"neighboring": plan.guarantee.neighboring, "unit": plan.guarantee.unit}
        made = charge(Ledger(tmp_path / f"{next(numbers)}.db", 100.0, 0.5, **terms), plan, label)
        receipts.append(made)
        return made

    monkeypatch.setattr(release, "charge", paid)
    with insecure_noise(0):
        found = statements(releases.PROGRAMS[name](releases.ordinary(0)))
    assert found
    assert receipts
    for one in found:
        assert one.paid == receipts[0]  # the first: tries of a search come after the charge for all of it
        assert PrivacyStatement.from_dict(one.to_dict()) == one


@pytest.mark.parametrize(
    "leak",
    [
        lambda data: float(np.nanmax(data[0])),
        lambda data: int(np.isnan(data[1]).sum()),
        lambda data: np.zeros(int(np.isnan(data[1]).any()) + 1),
    ],
)
def test_a_leak_is_found(leak):
    def program(data):
        model = releases.median(data)
        model.leak_ = leak(data)
        return shown(model)

    one = trace(program, releases.ordinary(0))
    two = trace(program, unrelated("PrivateMedian"), answers=one.calls)
    assert "leak_" in difference(one.state, two.state)
