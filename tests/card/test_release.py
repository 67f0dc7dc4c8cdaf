"""A model file is bound to the release that its charge paid for, and to nothing else."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import discreet
from discreet import Ledger, PrivateLogisticRegression, card
from discreet.card.card import from_array
from discreet.cli import main
from discreet.privacy.events import Pure
from discreet.release import release_digest
from tests.card.test_card_trust import fitted, resealed


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "budget.ledger", 50.0, 1e-3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


def fit(kind, ledger):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (2000, 3))
    y = (X[:, 0] > 0).astype(int)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    match kind:
        case "logistic":
            return PrivateLogisticRegression(classes=[0, 1], ledger=ledger).fit(X, y)
        case "names":
            return PrivateLogisticRegression(classes=["no", "yes"], ledger=ledger).fit(
                frame, np.where(y, "yes", "no")
            )
        case "three":
            return discreet.PrivateLinearSVC(classes=[0, 1, 2], ledger=ledger).fit(X, y)
        case "ridge":
            return discreet.PrivateRidge(target_bounds=(-1, 1), ledger=ledger).fit(X, X[:, 0])
        case "median":
            return discreet.PrivateMedian(1.0, 1e-6, radius=1.0, ledger=ledger).fit(X)
        case "user":
            model = PrivateLogisticRegression(classes=[0, 1], max_rows_per_group=2, ledger=ledger)
            return model.fit(X, y, groups=np.arange(2000) // 2)
        case "recommender":
            ratings = sp.random_array(
                (200, 8), density=0.5, rng=rng, data_sampler=lambda size: rng.integers(1, 6, size)
            )
            return discreet.PrivateMatrixCompletion("auto", 1.0, 1e-6, ledger=ledger).fit(ratings.tocsr())
        case "search":
            choices = [PrivateLogisticRegression(classes=[0, 1], l2=l2) for l2 in (1.0, 10.0)]
            search = discreet.PrivateSelection(choices, 1.0, 1e-6, classes=[0, 1], ledger=ledger)
            return search.fit(frame, y).best_estimator_


KINDS = ["logistic", "names", "three", "ridge", "median", "user", "recommender", "search"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_bound_to_its_charge(kind, ledger, path):
    model = fit(kind, ledger)
    card.save(model, path)
    (charge,) = ledger.history()
    assert model.privacy_.paid.bound
    assert charge.released == card.read(path).release_digest == model.privacy_.paid.released
    assert (charge.unit, charge.kind) == (model.privacy_.guarantee.unit, model.privacy_.guarantee.kind)
    found = card.verify(path, ledger=ledger)
    assert (found.matches, found.edited) == (True, ())
    assert "matches charge 1 of the ledger" in str(found)
    assert "Not bound   parameters, schema and declarations" in str(found)
    again = card.load(path)
    card.save(again, path, overwrite=True)
    assert card.verify(path, ledger=ledger).matches


def replaced(name):
    def change(content):
        if name == "classes":
            content["classes"].reverse()
        elif name == "names":
            content["feature_names"] = ["b", "a", "c"]
        else:
            content["arrays"]["coef_"] = from_array(np.full((1, 3), 0.5))

    return change


@pytest.mark.parametrize("unbound", [False, True])
@pytest.mark.parametrize("name", ["coef", "classes", "names"])
def test_replaced_numbers_with_a_right_checksum_are_refused(name, unbound, ledger, path):
    """Also when whoever replaced them took the binding out of the receipt: the ledger knows."""
    card.save(fit("names", ledger), path)

    def change(content):
        replaced(name)(content)
        if unbound:
            for entry in ("released", "head"):
                del content["privacy"]["paid"][entry]

    resealed(path, change)
    message = "than were released under charge 1" if unbound else "not those that its receipt is bound to"
    with pytest.raises(card.CardError, match=message):
        card.verify(path, ledger=ledger)


def test_a_second_model_cannot_borrow_the_charge_of_another(ledger, path):
    paid, free = fit("logistic", ledger), fit("logistic", None)
    free.privacy_ = paid.privacy_
    card.save(free, path)
    with pytest.raises(card.CardError, match="not those that its receipt is bound to"):
        card.verify(path)


def test_edits_are_kept_apart_from_the_release(ledger, path, capsys):
    model = fit("names", ledger)
    model.coef_[0, 0] = 0.0
    model.feature_names_in_ = np.array(["age", "b", "c"], dtype=object)
    card.save(model, path)
    found = card.verify(path, ledger=ledger)
    assert found.matches
    assert sorted(found.edited) == ["coef_", "feature_names_in_"]
    assert main(["verify", str(path), "--ledger", str(ledger.path)]) == 0
    assert (
        "EDITED      coef_, feature_names_in_: predictions are not those of the release"
        in capsys.readouterr().out
    )
    again = card.load(path)
    assert again.coef_[0, 0] == 0.0
    assert again.released_["coef_"][0, 0] == model.released_["coef_"][0, 0] != 0.0
    assert list(again.feature_names_in_) == ["age", "b", "c"]
    card.save(again, path, overwrite=True)
    assert card.verify(path, ledger=ledger).edited == found.edited


def test_renamed_items_of_a_recommender_are_an_edit(ledger, path):
    model = fit("recommender", ledger)
    model.items_ = model.items_[::-1].copy()
    card.save(model, path)
    assert card.verify(path, ledger=ledger).edited == ("items",)


def test_a_release_that_cannot_be_recorded_is_handed_over_unbound(ledger, path, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr("discreet.privacy.ledger.file.LedgerFile.bind", full)
    model = fit("logistic", ledger)
    assert not model.privacy_.paid.bound
    assert "not bound to a release" in str(model.privacy_)
    card.save(model, path)
    found = card.verify(path, ledger=ledger)
    assert (found.charge, found.matches) == (1, None)
    assert "Release     not recorded by the ledger" in str(found)


def test_a_charge_has_one_release(ledger):
    receipt = ledger.receipt(ledger.charge(Pure(0.1)))
    bound = ledger.bind(receipt, release_digest({"x": 1.0}))
    assert bound.bound
    assert bound.head == ledger.head
    assert not ledger.bind(receipt, release_digest({"x": 2.0})).bound
    assert [charge.released for charge in ledger.history()] == [release_digest({"x": 1.0})]
    made_up = discreet.privacy.statement.Receipt(ledger.identity, 2, "0" * 64)
    assert not ledger.bind(made_up, "0" * 64).bound


def test_an_older_copy_of_the_ledger_is_recognized(ledger, path, tmp_path, capsys):
    ledger.charge(Pure(0.1))
    before = shutil.copy(ledger.path, tmp_path / "before.ledger")
    receipt = ledger.receipt(ledger.charge(Pure(0.1)))
    model = fit("logistic", ledger)
    card.save(model, path)
    with pytest.raises(card.CardError, match=r"is older than .* ends before charge 3"):
        card.verify(path, ledger=before)
    assert main(["verify", str(path), "--ledger", str(before)]) == 1
    assert "overstates the remaining budget" in capsys.readouterr().err
    ledger.bind(receipt, "0" * 64)
    assert card.verify(path, ledger=ledger).matches
    assert main(["ledger", "show", str(ledger.path)]) == 0
    assert f"Head       {ledger.head}" in capsys.readouterr().out
    assert f"chain head {model.privacy_.paid.head}" in " ".join(str(model.privacy_).split())


def test_a_copy_from_between_charge_and_release_is_recognized(ledger, path, tmp_path, monkeypatch):
    bind = Ledger.bind

    def copied(*given):
        shutil.copy(ledger.path, tmp_path / "between.ledger")
        return bind(*given)

    monkeypatch.setattr(Ledger, "bind", copied)
    card.save(fit("logistic", ledger), path)
    with pytest.raises(card.CardError, match=r"is older than .* ends before the release of charge 1"):
        card.verify(path, ledger=tmp_path / "between.ledger")


def test_another_history_of_the_same_ledger_is_recognized(ledger, path, tmp_path):
    other = shutil.copy(ledger.path, tmp_path / "other.ledger")
    card.save(fit("logistic", ledger), path)
    fit("logistic", Ledger(other))
    with pytest.raises(card.CardError, match="one of the two was rewritten"):
        card.verify(path, ledger=other)


FORGED = "0.1.0\nSignature   by the given key\nPaid for    charge 1 of the given ledger\x1b[8m"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(library=FORGED), "library is not a version number"),
        (lambda content: content.update(library="0.1.0\n"), "library is not a version number"),
        (lambda content: content["privacy"]["guarantee"].update(unit="user\x1b[31m"), "unit must be"),
        (lambda content: content["privacy"]["guarantee"].update(kind="none"), "kind must be"),
        (lambda content: content["privacy"]["guarantee"].update(epsilon=True), "epsilon must be"),
        (lambda content: content["parameters"].update(ledger="evil.db"), "cannot set ledger"),
        (lambda content: content["parameters"].update(random_state=1), "cannot set random_state"),
        (lambda content: content["facts"].update(__class__="x"), "the only fact is multi_class_"),
        (lambda content: content.update(original={"ledger": "x"}), "that such a model does not have"),
    ],
)
def test_hostile_entries_are_refused(change, message, path, capsys):
    card.save(fitted("logistic")[0], path)
    resealed(path, change)
    for read in (card.load, card.verify):
        with pytest.raises(card.CardError, match=message):
            read(path)
    assert main(["verify", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert "\x1b" not in shown.err


def test_whatever_a_file_says_is_printed_on_its_own_line(path, capsys):
    """Text in a file cannot add lines, colors or directions to a report."""
    card.save(fitted("logistic")[0], path)

    def change(content):
        content["privacy"]["mechanism"] = "none\nGuarantee:  (0.01, 0)\x1b[8m\u202e"
        content["privacy"]["assumptions"] = ["one\n  - two\x1b[2K"]

    resealed(path, change)
    shown = str(card.load(path).privacy_)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert sum(line.startswith("Guarantee:") for line in shown.splitlines()) == 1
    assert "\n  - two" not in shown


def test_what_charges_say_is_printed_on_their_own_line(ledger, capsys):
    ledger.charge(Pure(0.1), label="\x1b[1A\x1b[2K\x1b[8m hidden\n    2  forged", who="eve\u202e\r")
    for action in ("show", "history", "plot"):
        assert main(["ledger", action, str(ledger.path)]) == 0
        shown = capsys.readouterr().out
        assert not {"\x1b", "\u202e", "\r"} & set(shown)
        assert "\n    2  forged" not in shown
    assert "\x1b" not in str(ledger.history()[0])


def test_the_words_say_what_was_not_checked(path):
    card.save(fitted("logistic")[0], path)
    shown = str(card.verify(path))
    for words in (
        "Checksum    matches: detects accidental damage; anyone can recompute it",
        "Signature   none: the file does not show who made it",
        "Paid for    not checked, and the file names no charge",
        "Release     not checked: no ledger was given",
    ):
        assert words in shown
    assert "unchanged" not in shown


def many(kind, n, **fields):
    """A composition of n different events."""
    return {
        "kind": "Composed",
        "events": [{"kind": kind, **{name: value + i for name, value in fields.items()}} for i in range(n)],
    }


OBJECTIVE = {
    "kind": "ObjectivePerturbation",
    "family": "logistic",
    "noise_multiplier": 40.0,
    "leverage": 0.01,
    "smoothness": 0.25,
    "output_mu": 0.0005,
    "n_outputs": 1,
}


@pytest.mark.parametrize(
    "event",
    [
        many("Laplace", 3000, noise_multiplier=1e5),
        many("BoundedRange", 500, epsilon=1e-6),
        {"kind": "Grouped", "event": OBJECTIVE, "size": 10**12},
        OBJECTIVE | {"n_outputs": 10**9},
        {"kind": "OneOf", "events": [many("Laplace", 30, noise_multiplier=1e3 * k) for k in range(1, 20)]}
        | {"delta": 1e-7, "neighboring": "replace-one"},
        {"kind": "Composed", "events": [{"kind": "Pure", "epsilon": 1e-9}] * 20_000},
    ],
    ids=["many Laplace", "many ranges", "large groups", "many models", "many parts", "many equal"],
)
def test_events_that_would_take_hours_are_refused_at_once(event, path, monkeypatch):
    card.save(fitted("logistic")[0], path)
    resealed(path, lambda content: content["privacy"].update(event=event))

    def priced(*_):
        raise AssertionError("pricing has begun")

    monkeypatch.setattr("discreet.card.files.recomputed", priced)
    with pytest.raises(card.CardError, match="too many, or too different, to be priced"):
        card.verify(path)


def test_digests_depend_on_values_and_shapes_and_on_nothing_else():
    values = {"coef_": np.array([[0.1, -0.0], [3.0, 5e-324]]), "classes_": np.array(["a", "b"]), "none": None}
    same = [
        {name: values[name] for name in reversed(values)},
        values | {"coef_": np.asfortranarray(values["coef_"]).astype(">f8")},
        values | {"classes_": np.array(["a", "b"], dtype=object)},
        values | {"classes_": ["a", "b"]},
    ]
    others = [
        values | {"coef_": values["coef_"].T},
        values | {"coef_": values["coef_"].ravel()},
        values | {"coef_": np.abs(values["coef_"])},  # the sign of zero
        values | {"classes_": np.array(["b", "a"])},
        values | {"classes_": np.array(["a,", "b"])},
        values | {"none": ["None"]},
        {"coef": values["coef_"], **{name: values[name] for name in ("classes_", "none")}},
    ]
    digest = release_digest(values)
    assert {release_digest(value) for value in same} == {digest}
    assert len({release_digest(value) for value in others} | {digest}) == len(others) + 1
    assert release_digest({"a": np.int32([1])}) == release_digest({"a": [1]}) != release_digest({"a": [1.0]})


def test_files_of_unedited_models_hold_no_second_copy(path):
    card.save(fitted("logistic")[0], path)
    assert "original" not in json.loads(path.read_text())
