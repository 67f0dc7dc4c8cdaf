"""Fault injection: whatever dies between plan, charge and release, never less is spent than was released."""

import errno
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from discreet import BudgetExceeded, Ledger, PrivateLinearSVC, release
from discreet.cli import main
from discreet.estimators import classifiers, linear

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(40, 2))
Y = np.repeat([0, 1], 20)


def model(ledger, epsilon=1.0):
    return PrivateLinearSVC(epsilon, 1e-3, classes=[0, 1], ledger=ledger)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "l", 3.0, 0.01)


def published(estimator):
    return hasattr(estimator, "coef_") or hasattr(estimator, "privacy_")


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), KeyboardInterrupt(), MemoryError(), OSError(errno.ENOSPC, "full")]
)
@pytest.mark.parametrize(
    ("place", "step"),
    [
        (classifiers, "read_labels"),
        (linear, "guarantee_of"),
        (release, "check"),
        (release, "charge"),
        (release, "fresh_entropy"),
        (release, "run"),
        (release, "bind"),
        (release.Carried, "state"),
    ],
)
def test_an_error_at_any_step(place, step, error, ledger):
    """Before the charge nothing is spent; from the run on the charge stands; nothing half-made is published."""
    estimator = model(ledger)
    with mock.patch.object(place, step, side_effect=error), pytest.raises(type(error)):
        estimator.fit(X, Y)
    assert len(ledger.history()) == (1 if step in ("fresh_entropy", "run", "bind", "state") else 0)
    assert not hasattr(estimator, "privacy_")
    assert not published(estimator)
    model(ledger).fit(X, Y)  # and the ledger still works


def test_a_refit_that_is_refused_leaves_no_new_numbers(ledger):
    estimator = model(ledger, epsilon=2.5).fit(X, Y)
    before = estimator.coef_.copy()
    with pytest.raises(BudgetExceeded):
        estimator.fit(X, Y)
    assert np.array_equal(estimator.coef_, before)
    assert len(ledger.history()) == 1


KILLED = """
    import os, signal, sys
    import numpy as np
    from unittest import mock
    from discreet import Ledger, PrivateLinearSVC
    from discreet import release
    from discreet.privacy.ledger import file as ledger_file

    def die(*arguments, **options):
        os.kill(os.getpid(), signal.SIGKILL)

    module, name, when, path = sys.argv[1:]
    place = {"release": release, "carried": release.Carried, "file": ledger_file.LedgerFile}[module]
    real = getattr(place, name)

    def wrapped(*arguments, **options):
        if when == "before":
            die()
        result = real(*arguments, **options)
        die()

    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.repeat([0, 1], 20)
    model = PrivateLinearSVC(1.0, 1e-3, classes=[0, 1], ledger=Ledger(path))
    setattr(place, name, wrapped)
    model.fit(X, y)
    print("RELEASED", model.coef_.tolist(), flush=True)
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("release", "charge"),
        ("release", "run"),
        ("carried", "state"),
        ("file", "append"),
        ("file", "_read"),
    ],
)
def test_killed_between_plan_charge_and_release(module, name, when, ledger):
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), module, name, when, str(ledger.path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert "RELEASED" not in run.stdout
    charged = len(Ledger(ledger.path).history())
    # "_read" runs inside the transaction that writes the charge, before it is committed.
    unspent = name == "_read" or (name in ("charge", "append") and when == "before")
    assert charged == (0 if unspent else 1)
    model(Ledger(ledger.path)).fit(X, Y)
    assert len(Ledger(ledger.path).history()) == charged + 1


def test_a_full_disk_refuses_the_charge_and_so_the_run(ledger):
    """The process may not write one byte beyond what the ledger has: the charge fails, and nothing runs."""
    code = """
        import os, resource, signal, sys
        import numpy as np
        from discreet import Ledger, PrivateLinearSVC
        from discreet import release
        X, y = np.random.default_rng(0).normal(size=(40, 2)), np.repeat([0, 1], 20)
        model = PrivateLinearSVC(1.0, 1e-3, classes=[0, 1])
        model.fit(X, y)  # compiles and caches what it needs while there is room
        account = Ledger(sys.argv[1])
        model.set_params(ledger=account)
        runs = []
        release.run = lambda *arguments: runs.append(arguments)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256, resource.RLIM_INFINITY))
        try:
            model.fit(X, y)
        except Exception as error:
            print(type(error).__name__, len(runs), len(str(error)) > 10, flush=True)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(ledger.path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout.split() == ["LedgerError", "0", "True"], run.stdout + run.stderr
    assert Ledger(ledger.path).history() == []


def test_two_processes_cannot_overspend_one_ledger(tmp_path):
    path = tmp_path / "l"
    Ledger(path, 1.05, 0.01)
    code = """
        import sys, numpy as np
        from discreet import BudgetExceeded, Ledger, PrivateLinearSVC
        X, y = np.random.default_rng(0).normal(size=(40, 2)), np.repeat([0, 1], 20)
        model = PrivateLinearSVC(1.0, 1e-3, classes=[0, 1], ledger=Ledger(sys.argv[1]))
        for _ in range(3):
            try:
                model.fit(X, y)
                print("RELEASED", flush=True)
            except BudgetExceeded:
                print("REFUSED", flush=True)
    """
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    output = "".join(worker.communicate(timeout=120)[0] for worker in workers)
    assert output.count("RELEASED") == len(Ledger(path).history()) == 1
    assert output.count("REFUSED") == 5


def test_a_clock_that_jumps_back_does_not_matter(ledger, monkeypatch):
    import time

    model(ledger, 0.5).fit(X, Y)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    model(ledger, 0.5).fit(X, Y)
    assert len(Ledger(ledger.path).history()) == 2


def test_a_model_that_cannot_be_saved_stays_charged_and_says_so(tmp_path, capsys, monkeypatch):
    from discreet.card import files
    from discreet.tables.schema import Numeric, Schema, Target

    Schema({"a": Numeric(0, 1)}, target=Target("t", ("0", "1"))).to_file(tmp_path / "s.toml")
    (tmp_path / "d.csv").write_text("a,t\n" + "0.1,0\n0.9,1\n" * 20)
    ledger = Ledger(tmp_path / "l", 3.0, 0.01)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_atomically", full)
    command = ["fit", str(tmp_path / "d.csv"), "--schema", str(tmp_path / "s.toml"), "--epsilon", "1"]
    assert main([*command, "--ledger", str(tmp_path / "l"), "--output", str(tmp_path / "m.json")]) == 1
    assert "ledger was charged" in capsys.readouterr().err
    assert len(ledger.history()) == 1
    assert not Path(tmp_path / "m.json").exists()
