"""One policy file for several data sets and people; the data set's cap is the promise."""

import pickle
import warnings

import numpy as np
import pytest

import discreet
from discreet.cli import main
from discreet.privacy.events import Gaussian, Pure
from discreet.privacy.ledger.ledger import BudgetExceeded, Ledger, LedgerError
from discreet.privacy.ledger.policy import Policy

TEXT = """
[data.cohort]
ledger = "cohort.ledger"
epsilon = 3.0
delta = 0.0

[data.wards]
ledger = "wards.ledger"
epsilon = 1.0
delta = 1e-6
neighboring = "add-remove-one"

[people.alice]
cohort = 1.0
wards = 0.5

[people."bob/../x"]
cohort = "all"
"""


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "budgets.toml").write_text(TEXT)
    return Policy.read(tmp_path / "budgets.toml")


def test_a_share_stops_its_owner_and_nobody_else(policy):
    alice, bob = policy.ledger("cohort", "alice"), policy.ledger("cohort", "bob/../x")
    alice.charge(Pure(0.75))
    with pytest.raises(BudgetExceeded, match="the share of 'alice' does not allow it"):
        alice.charge(Pure(0.5))
    bob.charge(Pure(2.0))
    assert [(charge.who, charge.event) for charge in policy.dataset("cohort").history()] == [
        ("alice", Pure(0.75)),
        ("bob/../x", Pure(2.0)),
    ]


def test_what_a_share_says_is_left_is_what_it_admits(policy):
    """The smaller of what the share and what the data set have left, whichever that is."""
    alice, bob = policy.ledger("cohort", "alice"), policy.ledger("cohort", "bob/../x")
    alice.charge(Pure(0.75))
    assert bob.remaining().pure_epsilon == pytest.approx(2.25)
    assert alice.remaining().pure_epsilon == alice.remaining().epsilon == pytest.approx(0.25)
    assert [share.admits(Pure(0.5)) for share in (alice, bob)] == [False, True]
    assert alice.admits(Pure(0.25))
    bob.charge(Pure(2.125))
    assert alice.remaining().pure_epsilon == pytest.approx(0.125)
    assert [alice.admits(Pure(size)) for size in (0.25, 0.125)] == [False, True]
    wards = policy.ledger("wards", "alice")
    left = wards.remaining()
    assert left == wards.own.remaining()
    assert left.noise_multiplier > policy.dataset("wards").remaining().noise_multiplier
    assert wards.admits(Gaussian(left.noise_multiplier * 1.001))
    assert not wards.admits(Gaussian(left.noise_multiplier * 0.99))


def test_the_cap_of_the_data_set_holds_and_costs_a_share_nothing(policy):
    alice, bob = policy.ledger("cohort", "alice"), policy.ledger("cohort", "bob/../x")
    bob.charge(Pure(2.5))
    with pytest.raises(BudgetExceeded, match="does not fit under the cap of epsilon 3"):
        alice.charge(Pure(0.75))
    assert alice.own.spent().epsilon == 0
    alice.charge(Pure(0.5))


def test_shares_survive_reopening_and_pickling(policy):
    policy.ledger("cohort", "alice").charge(Pure(0.75))
    again = pickle.loads(pickle.dumps(Policy.read(policy.path).ledger("cohort", "alice")))
    with pytest.raises(BudgetExceeded):
        again.charge(Pure(0.5))
    assert again.charge(Pure(0.25)).who == "alice"


def test_no_name_leaves_the_folder_or_meets_another(policy, tmp_path):
    policy.ledger("cohort", "bob/../x")
    with pytest.raises(LedgerError, match="gives 'eve' no share of 'cohort'; those who have one: alice"):
        policy.ledger("cohort", "eve")
    with pytest.raises(LedgerError, match="cannot charge it"):
        policy.ledger("cohort", "alice").charge(Pure(0.1), who="bob")
    assert {path.name for path in tmp_path.iterdir()} == {
        "budgets.toml",
        "cohort.ledger",
        "cohort.ledger.alice",
    }


def test_an_estimator_spends_a_share(policy):
    rows = np.random.default_rng(0).normal(size=(500, 2))
    share = policy.ledger("wards", "alice")
    model = discreet.PrivateLogisticRegression(
        0.4, 1e-7, classes=[0, 1], neighboring="add-remove-one", n_samples=500, ledger=share
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", discreet.PrivacyWarning)
        model.fit(rows, (rows[:, 0] > 0).astype(int))
    assert policy.dataset("wards").history()[0].who == "alice"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data", "is not valid TOML"),
        ("", "must hold"),
        ("[other]\nx = 1", "must hold"),
        ("[data.a]\nledger = 'x'", r"\[data.a\] lacks delta, epsilon"),
        (TEXT.replace("delta = 0.0", "delta = 0.0\nsize = 3"), "has unknown settings size"),
        (TEXT.replace("cohort = 1.0", "nothing = 1.0"), "which is no data set"),
        (TEXT.replace("cohort = 1.0", "cohort = -1.0"), "must be a finite epsilon greater than 0"),
        (TEXT.replace("cohort = 1.0", "cohort = inf"), "must be a finite epsilon"),
        (TEXT.replace("cohort = 1.0", "cohort = 1" + "0" * 400), "must be a finite epsilon"),
        (TEXT.replace("cohort = 1.0", "cohort = true"), "must be a finite epsilon greater than 0"),
    ],
)
def test_mistakes_in_a_policy_are_named(tmp_path, text, message):
    (tmp_path / "budgets.toml").write_text(text)
    with pytest.raises(LedgerError, match=message):
        Policy.read(tmp_path / "budgets.toml")
    with pytest.raises(LedgerError, match="cannot be read"):
        Policy.read(tmp_path / "none.toml")


def test_a_pickled_share_does_not_accept_another_file(policy):
    for who in ("alice", "bob/../x"):
        share = policy.ledger("cohort", who)
        packed = pickle.dumps(share)
        again = pickle.loads(packed)
        assert (again.who, again.own, again.path) == (who, share.own, share.path)
        share.path.unlink()
        Ledger(share.path, 3.0, 0.0)
        with pytest.raises(LedgerError, match="replaced by another ledger"):
            pickle.loads(packed)


def test_different_people_have_different_files(tmp_path):
    """Codes of letters without an end would run into the letters that follow."""
    people = ["a.5", "a\u02e5", "a.", "a%2e", "a.5.", "\u02e5", "\U0010ffff", "%10ffff"]
    sections = "".join(f'[people."{name}"]\ncohort = 1.0\n' for name in people)
    (tmp_path / "budgets.toml").write_text(TEXT.split("[people")[0] + sections, encoding="utf-8")
    policy = Policy.read(tmp_path / "budgets.toml")
    paths = {policy.ledger("cohort", name).own.path for name in people}
    assert len(paths) == len(people)
    assert {path.parent for path in paths} == {tmp_path}


def test_the_command_line_shows_who_spent_what(policy, tmp_path, capsys):
    policy.ledger("cohort", "alice").charge(Pure(0.75), label="ages")
    policy.ledger("cohort", "bob/../x").charge(Pure(1.5))
    path = str(tmp_path / "cohort.ledger")
    assert main(["ledger", "policy", str(policy.path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "cohort (everybody) 3 2.25" in shown
    assert "cohort alice 1.0 0.75" in shown
    assert "cohort bob/../x all 1.5" in shown
    assert main(["ledger", "show", path]) == 0
    assert "alice 1 0.75" in " ".join(capsys.readouterr().out.split())
    assert main(["ledger", "plot", path]) == 0
    bars = [line.count("#") for line in capsys.readouterr().out.splitlines() if "#" in line]
    assert bars == [10, 30]
    assert main(["ledger", "export", path, "--output", str(tmp_path / "out.json")]) == 0
    assert '"label": "ages"' in (tmp_path / "out.json").read_text()


def test_who_defaults_to_the_user_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "carol")
    ledger = Ledger(tmp_path / "a.ledger", 1.0, 0.0)
    assert ledger.charge(Pure(0.5)).who == "carol"
    assert ledger.admits(Pure(0.5))
    assert not ledger.admits(Pure(0.6))
    assert ledger.spent(first=0).epsilon == 0.0
