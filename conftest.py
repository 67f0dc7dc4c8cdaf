"""Settings for every test: no deadlines (machines differ), and the same noise and examples in every run.

A test of random numbers that passes "almost always" fails some day for nothing, so each test and each fixture
draws its noise from a key made of its own name. ``pytest --fresh-noise`` draws from the operating system
instead, as the library does for everybody else; tests marked ``fresh_noise`` always do.

Tests with long lists of cases run a few of them, spread evenly over the list, and those marked ``slow`` one.
``pytest --every-case`` runs all cases, and the tests marked ``nightly``, as `make nightly` does. ``pytest --quick``
runs the first case of every test, without those that ``tests/slow.txt`` lists: the ones that took longer than
`QUICK` seconds when ``pytest --quick --note-slow`` last wrote that file.
"""

import contextlib
import hashlib
import itertools
import os
from pathlib import Path

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # two workers have two processors; set before NumPy is loaded

import pytest
from hypothesis import settings

from discreet import release
from discreet.mechanisms.samplers.entropy import Entropy

CASES = 2  # of one test, by day
QUICK = 0.15  # seconds
SLOW = Path(__file__).parent / "tests" / "slow.txt"
# The warning counts releases over the whole process, which tests share; `counted_fits` brings it back.
genuine_warning, release.warn_uncharged = release.warn_uncharged, lambda promise: None

settings.register_profile("fresh", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)


def pytest_addoption(parser):
    parser.addoption("--fresh-noise", action="store_true", help="noise and examples differ between runs")
    parser.addoption(
        "--every-case", action="store_true", help="all cases of all tests, those of the night included"
    )
    parser.addoption("--quick", action="store_true", help="the first case of every test that is not slow")
    parser.addoption("--note-slow", action="store_true", help=f"write {SLOW.name}: the tests that take long")


def pytest_configure(config):
    config.addinivalue_line("markers", "fresh_noise: this test needs keys from the operating system")
    config.addinivalue_line("markers", "nightly: this test takes long; it runs with --every-case only")
    config.addinivalue_line("markers", "slow: each case takes seconds; by day the first one runs")
    settings.load_profile("fresh" if config.getoption("--fresh-noise") else "repeatable")


def test_of(nodeid):
    """The test that a case belongs to."""
    return nodeid.partition("[")[0]


def pytest_collection_modifyitems(config, items):
    if config.getoption("--every-case") or any("::" in argument for argument in config.args):
        return
    tests = {}
    for item in items:
        tests.setdefault(test_of(item.nodeid), []).append(item)
    if config.getoption("--quick") and not config.getoption("--note-slow"):
        for slow in SLOW.read_text().splitlines():
            tests.pop(slow, None)
    kept = set()
    for cases in tests.values():
        day = [item for item in cases if not item.get_closest_marker("nightly")]
        few = config.getoption("--quick") or any(item.get_closest_marker("slow") for item in day)
        most = 1 if few else CASES
        places = {round(place * (len(day) - 1) / max(1, most - 1)) for place in range(min(most, len(day)))}
        kept |= {day[place] for place in places}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


seconds = {}  # by test, as the process hears it that hands out the work


def pytest_runtest_logreport(report):
    test = test_of(report.nodeid)
    seconds[test] = seconds.get(test, 0.0) + report.duration


def pytest_sessionfinish(session):
    here = session.config
    if here.getoption("--note-slow") and not hasattr(here, "workerinput"):
        SLOW.write_text("".join(f"{test}\n" for test in sorted(seconds) if seconds[test] > QUICK))


@contextlib.contextmanager
def noise_named(name):
    """Keys are hashes of ``name`` and a counter; a forked child still gets keys nobody can repeat."""
    genuine, process, counter = Entropy._key, os.getpid(), itertools.count()

    def key(source):
        if os.getpid() != process:
            return genuine(source)
        return hashlib.sha512(f"{name}, {next(counter)}".encode()).digest()[:48]

    Entropy._key = key
    try:
        yield
    finally:
        Entropy._key = genuine


def repeatable(config, name):
    return contextlib.nullcontext() if config.getoption("--fresh-noise") else noise_named(name)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    with repeatable(request.config, f"{fixturedef.baseid} {fixturedef.argname} {request.node.nodeid}"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if item.get_closest_marker("fresh_noise"):
        return (yield)
    with repeatable(item.config, item.nodeid):
        return (yield)


@pytest.fixture
def counted_fits(monkeypatch):
    """Count fits without a ledger from nothing, and warn of them."""
    monkeypatch.setattr(release, "_uncharged", [])
    monkeypatch.setattr(release, "warn_uncharged", genuine_warning)
