"""Silence: after the charge nothing but the release differs between neighbors, whatever the process has set.

Each program of `releases` runs on neighbors, of which one has a hostile row, with equal answers of all mechanisms. Then
nothing may differ: neither an error, a warning, a log, a print, a file or the state of a global generator, nor what
the program shows, down to the types and shapes of attributes.
"""

import ast
import contextlib
import importlib
import inspect
import io
import locale
import logging
import random
import shutil
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow as pa
import pytest
import scipy.special

sys.path.insert(0, str(Path(__file__).parent))
import releases

import discreet
from discreet import losses, release, sets
from discreet._checks import silence
from discreet.audit.sensitivity import input_distances
from discreet.audit.trace import difference, trace
from discreet.cli import _parser, main
from discreet.estimators.linear import NoiseWarning
from discreet.privacy.guarantee import PrivacyWarning
from discreet.records import clipped_rows
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.records.open import Rows, open_rows
from discreet.solvers import base as solvers
from discreet.solvers.sampling import domains
from discreet.tables.schema import Numeric, Schema, Target
from tests.contracts.sources import SOURCES

PUBLIC_WARNINGS = (NoiseWarning, PrivacyWarning)  # come before the charge, from public facts
HOSTILE = {  # a row and its target
    "tiny": ([1e-200, 5e-324], 5e-324),
    "of all sizes": ([1e90, -1e-90], -1e-310),
    "beyond all bounds": ([1e300, -1e300], 1e300),
    "no numbers": ([np.nan, np.inf], np.nan),
}


def neighbors(name, action):
    """An ordinary data set, and those in which one row is hostile; a constant one, and one of its neighbors.

    What warns is what would raise: there, one neighbor is enough to tell that warnings are not heard either.
    """
    kinds = list(HOSTILE)[: 2 if name in releases.STRICT else None]
    constant = np.full((releases.N, releases.P), 0.5) * [1.0, 0.0], np.full(releases.N, 0.5)
    pairs = ((releases.ordinary(0), kinds), (constant, ["tiny"]))
    for base, rows in pairs if action == "raise" else ((releases.ordinary(0), ["of all sizes"]),):
        yield base, [exchanged(base, *HOSTILE[kind]) for kind in rows]


def exchanged(data, row, target):
    X, y = data[0].copy(), data[1].copy()
    X[3], y[3] = row, target
    return X, y


@pytest.fixture(autouse=True, scope="module")
def decimal_commas(tmp_path_factory):
    """A German locale, made where the system has its sources but not itself."""
    place = tmp_path_factory.mktemp("locales")
    with pytest.MonkeyPatch.context() as patched:
        if not any(name.lower().startswith("de_de") for name in locales()) and shutil.which("localedef"):
            subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", place / "de_DE.UTF-8"], check=False)
            patched.setenv("LOCPATH", str(place))
        yield


def locales():
    """The locales that the system knows by name."""
    if not shutil.which("locale"):
        return []
    return subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.split()


@contextlib.contextmanager
def hostile(action, said):
    """A process in which everything that can be told to speak, or to fail, has been told to."""
    handler = logging.Handler()
    handler.emit = lambda record: said.append((record.name, record.levelname, record.getMessage()))
    root, level, place = logging.getLogger(), logging.getLogger().level, locale.setlocale(locale.LC_ALL)
    printed = io.StringIO()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    handler.addFilter(lambda record: not record.name.startswith("numba."))  # compiles once in a process
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    random.seed(0)
    np.random.seed(0)
    warnings.simplefilter("error" if action == "raise" else "always")
    for kind in PUBLIC_WARNINGS:
        warnings.simplefilter("ignore", kind)
    filters = list(warnings.filters)
    try:
        with (
            np.errstate(all=action),
            scipy.special.errstate(all=action),
            discreet.on_progress(said.append),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            yield
            said.append(("errors", np.geterr(), scipy.special.geterr()))
    finally:
        said.append(("printed", printed.getvalue()))
        said.append(("filters kept", warnings.filters == filters))
        said.append(("generators", random.random(), np.random.random()))
        locale.setlocale(locale.LC_ALL, place)
        root.setLevel(level)
        root.removeHandler(handler)


def heard(program, data, action, answers=None):
    """The trace of a program in a hostile process, and all that was to be heard."""
    said = []

    def in_public(data):
        with hostile(action, said):
            return program(data)

    run = trace(in_public, data, answers=answers)
    files = sorted((path.name, path.read_bytes()) for path in Path.cwd().iterdir())
    return run, (run.error, run.warnings, said, files)


def too_far(one, two, name=""):
    """Inputs of mechanisms that differ by more than they may. To exchange a row is to blank it out twice."""
    solver = name.removeprefix("solver ")
    blanked = solver in solvers.names() and releases.home_of(solver)[1].get("neighboring") == "zero-out"
    far = input_distances(one, two)
    return [
        one for one in far if one.exceeded and not (blanked and one.observed <= 2 * one.declared * (1 + 1e-9))
    ]


def test_a_hostile_process_writes_decimal_commas():
    with warnings.catch_warnings(), hostile("raise", []):
        found = locale.localeconv()["decimal_point"], f"{0.5:n}"
    if found == (".", "0.5"):
        pytest.skip("this system has no German locale, and nothing to make one of")
    assert found == (",", "0,5")


@pytest.mark.parametrize("action", ["raise", "warn"])
@pytest.mark.parametrize("name", releases.PROGRAMS)
def test_nothing_is_said(name, action, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = releases.PROGRAMS[name]
    if action == "warn" and name in releases.SPARSE:
        program = releases.in_csr(program)
    for base, others in neighbors(name, action):
        one, said = heard(program, base, action)
        assert one.error is None
        assert one.calls
        for other in others:
            two, said_of_other = heard(program, other, action, one.calls)
            assert said_of_other == said
            assert difference(one.state, two.state) is None
            assert not too_far(one, two, name)  # no other row was read anew


def named_in_public():
    """Functions and classes that the package or one of its subpackages offers."""
    packages = [discreet, *(importlib.import_module(f"discreet.{name}") for name in SUBPACKAGES)]
    found = {name: getattr(package, name) for package in packages for name in getattr(package, "__all__", ())}
    return {
        name: thing
        for name, thing in found.items()
        if inspect.isfunction(thing) or (inspect.isclass(thing) and not issubclass(thing, Exception))
    }


#: Those with releases; `test_every_module_that_releases_is_listed` compares.
SUBPACKAGES = sorted({module.split(".")[0] for module in releases.WAYS})


def test_every_release_of_the_library_is_listed():
    """Whatever takes a ledger; what all searches and additive models share is run by each."""
    taking = {
        name for name, thing in named_in_public().items() if "ledger" in inspect.signature(thing).parameters
    } - {"PrivateLinearModel"}  # which all linear models are
    assert len(taking) > 20
    listed = {word for name in releases.PROGRAMS for word in name.split()}
    assert taking <= listed


def test_everything_that_knows_people_is_listed_with_them():
    """Whatever takes ids of people, at a fit, at a step or in one call."""
    knowing = {
        name
        for name, thing in named_in_public().items()
        for way in (thing, getattr(thing, "fit", None), getattr(thing, "learn_one", None))
        if callable(way) and {"group", "groups"} & inspect.signature(way).parameters.keys()
    } - {
        "Schema",
        "PrivateLinearModel",
    }  # the first reads tables and releases nothing; linear models are the second
    assert len(knowing) > 25
    assert knowing <= {name.removesuffix(" people") for name in releases.PROGRAMS if name.endswith(" people")}


def test_every_set_and_loss_is_listed():
    assert releases.CONSTRAINTS.keys() == set(sets.__all__) - {"Array", "Geometry", "Polytope"}
    drawn = {kind.__name__ for kind in domains.SETS}
    assert drawn == {name.split()[-1] for name in releases.SAMPLED}
    elsewhere = {  # losses that nobody passes, and what runs with them
        "CappedLogistic": "solver noisy-gd",
        "CappedSoftmax": "PrivateLogisticRegression 3 classes",
        "ClassWeighted": "PrivateLogisticRegression weighted",
        "GradientLoss": "PrivateERM own gradients",
        "Hinge": "PrivateERM hinge",
        "HuberRegression": "PrivateHuberRegressor",
        "Poisson": "PrivatePoissonRegressor",
    }
    kinds = {name for name in losses.__all__ if isinstance(getattr(losses, name), type)} - {"Loss"}
    assert {name.removeprefix("PrivateERM ") for name in releases.LOSSES} | elsewhere.keys() == kinds
    assert set(elsewhere.values()) <= releases.PROGRAMS.keys()


def test_every_module_that_releases_is_listed():
    """Only `release` brings data and noise together: who calls it is found in the sources."""
    source = Path(discreet.__file__).parent
    found = {
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("carry_out", "begin")
    }
    assert found == releases.WAYS.keys()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("module", releases.WAYS)
def test_programs_go_through_the_module_that_they_are_listed_for(module, monkeypatch):
    place, gone = importlib.import_module(f"discreet.{module}"), []
    (step,) = {"carry_out", "begin"} & {*vars(place)}
    real = getattr(place, step)
    monkeypatch.setattr(place, step, lambda *parts, **options: gone.append(1) or real(*parts, **options))
    releases.PROGRAMS[releases.WAYS[module]](releases.ordinary(0))
    assert gone


@pytest.mark.parametrize("action", ["raise", "warn"])
def test_a_run_without_silence_is_heard(action, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def loud(plan, data, entropy, progress=None):
        """Run with NumPy's state and the filter of the process."""
        with np.errstate(all=action):
            return plan.run(data, entropy)

    monkeypatch.setattr(release, "run", loud)
    program, base = releases.evaluated("PrivateRidge"), releases.ordinary(0)
    one, said = heard(program, base, action)
    assert one.error is None
    assert heard(program, exchanged(base, *HOSTILE["tiny"]), action, one.calls)[1] != said


# -- threads and workers: error states do not reach them ------------------------------------------------------------


def test_threads_are_silent(monkeypatch):
    """The passes of records run in threads of their own, in which NumPy's state is the default: to warn."""
    monkeypatch.setattr(clipped_rows, "_SMALL", 0)
    inside = []

    def task(part):
        inside.append((threading.get_ident(), np.geterr()["over"]))
        return np.float64(1e300) * np.float64(1e300)

    X = np.ones((64, 2))
    records = ArrayRecords(X, np.ones(64), Bounds(), n_threads=4)
    with warnings.catch_warnings(action="error"), silence():
        assert records._run(task, list(range(64))) == [np.inf] * 64
    assert {state for _, state in inside} == {"ignore"}


def test_the_last_of_several_threads_restores_the_filter():
    """Filters belong to the process: a thread that is done first must not take the silence from the others."""
    inside, leave = threading.Event(), threading.Event()

    def first():
        with silence():
            inside.set()
            leave.wait(10)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(first)
            inside.wait(10)
            with silence():
                leave.set()
                running.result()
                warnings.warn("of the data", UserWarning, stacklevel=1)
        assert warnings.filters == filters


def table(X, y):
    return pa.table({"a": X[:, 0], "b": X[:, 1], "y": releases.labels_of(y)})


@contextlib.contextmanager
def of_dask(X, y):
    yield {"X": da.from_array(X, chunks=(20, 2)), "y": releases.labels_of(y)}


def of_source(make):
    @contextlib.contextmanager
    def opened(X, y):
        with make(table(X, y)) as data:
            yield {"X": data, "target": "y"}

    return opened


#: Rows that are not in memory, and those that stay on a cluster.
OPENED = {name: of_source(make) for (_, name), make in SOURCES.items()} | {"DaskRows": of_dask}


@pytest.mark.parametrize("action", ["raise", "warn"])
@pytest.mark.parametrize("source", OPENED)
def test_sources_are_silent(source, action, tmp_path, monkeypatch):
    """Whatever reads or keeps the rows; workers have error states of their own."""
    monkeypatch.chdir(tmp_path)

    def program(data):
        told = {"delta": 1e-2, "classes": [0, 1], "bad_rows": "null", "solver": "objective"}
        with OPENED[source](*data) as given:
            return discreet.PrivateLogisticRegression(1.0, **told).fit(**given)

    base = releases.ordinary(0)
    trace(program, base)
    one, said = heard(program, base, action)
    assert one.error is None
    for row in HOSTILE.values():
        two, said_of_other = heard(program, exchanged(base, *row), action, one.calls)
        assert said_of_other == said
        assert difference(one.state, two.state) is None
        assert not too_far(one, two)


def test_every_kind_of_rows_is_opened():
    """Kinds of sources are compared with their list in `test_own_rows`."""
    kinds = set()
    for make in OPENED.values():
        with make(*releases.ordinary(0)) as given:
            X = given.pop("X")
            with open_rows(X, classes=[0, 1], sums=True, **given) as (rows, _):
                kinds.add(type(rows))
    assert concrete(Rows) <= kinds


def concrete(kind):
    """The classes of `discreet.records` below this one that none of them refines. Teachers, elsewhere, ask no sums."""
    below = [one for one in kind.__subclasses__() if one.__module__.startswith("discreet.records")]
    return set().union(*map(concrete, below)) if below else {kind}


# -- the command line --------------------------------------------------------------------------------------------


PRICE = "--epsilon 1 --delta 1e-2 --overwrite"
COMMANDS = {
    "fit": (f"fit table.csv --schema schema.toml {PRICE} --bad-rows null --output model.json", list(HOSTILE)),
    # refuses what is no label before the charge, as the holder of the table wants to know
    "evaluate": (f"evaluate public.json table.csv {PRICE} --bins 2 --output report.json", list(HOSTILE)[:3]),
    "describe": (
        f"describe table.csv --schema schema.toml {PRICE} --bad-rows null --output table.json",
        list(HOSTILE),
    ),
    "additive": (
        f"fit table.csv --schema schema.toml {PRICE} --model additive --bad-rows null --output shapes.json",
        list(HOSTILE),
    ),
    "search": (
        f"search table.csv --schema schema.toml {PRICE} --vary l2=1,10 --bad-rows null --output best.json",
        list(HOSTILE),
    ),
    "intervals": (f"intervals public.json table.csv {PRICE} --output intervals.json", list(HOSTILE)[:2]),
    "label": (
        f"label table.csv --schema schema.toml --public public.csv --teachers 20 {PRICE} --output labels.csv",
        list(HOSTILE)[:3],
    ),
}


def test_every_command_that_charges_is_listed():
    (commands,) = (action.choices for action in _parser()._actions if isinstance(action.choices, dict))
    charging = {
        name
        for name, command in commands.items()
        for action in command._actions
        if "--ledger" in action.option_strings and "to charge" in action.help
    }
    assert {"fit", "describe", "label"} < charging
    assert charging == {command.split()[0] for command, _ in COMMANDS.values()}


def write_table(data):
    X, y = data
    rows = zip(*X.T.tolist(), releases.labels_of(y), strict=True)
    Path("table.csv").write_text("a,b,y\n" + "".join(f"{a!r},{b!r},{label}\n" for a, b, label in rows))


@pytest.mark.parametrize("action", ["raise", "warn"])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_alike(name, action, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Schema({"a": Numeric(-1, 1), "b": Numeric(-1, 1)}, Target("y", ("0", "1"))).to_file("schema.toml")
    base, (command, kinds) = releases.ordinary(0), COMMANDS[name]
    write_table(releases.ordinary(99))
    assert main(COMMANDS["fit"][0].replace("model.json", "public.json").split()) == 0
    Path("table.csv").rename("public.csv")

    def program(data):
        write_table(data)
        try:
            ended = main(command.split())
        finally:
            Path("table.csv").unlink()
        return ended, main(["verify", "model.json" if name == "fit" else "public.json"])

    assert program(base) == (0, 0)
    one, said = heard(program, base, action)
    assert one.error is None
    assert one.calls
    for kind in kinds:
        two, said_of_other = heard(program, exchanged(base, *HOSTILE[kind]), action, one.calls)
        assert said_of_other == said
        assert one.state == two.state
