"""Rules of the house that no single test would notice being broken."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "discreet"
MODULES = sorted(SOURCE.rglob("*.py"))
# Public synthetic data may use NumPy's generators; nothing that touches private data may.
MAKES_PUBLIC_DATA = {"cohort.py"}
# Sets the global generators for code of the user's, and restores them; draws nothing.
SETS_GENERATORS = {
    "teachers.py": {
        *("np.random.get_state", "np.random.set_state", "np.random.get_bit_generator"),
        *("random.getstate", "random.seed", "random.setstate"),
    }
}


def attribute_chains(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_noise_is_drawn_only_in_mechanisms(path):
    if path.name in MAKES_PUBLIC_DATA:
        return
    inside = "mechanisms" in path.relative_to(SOURCE).parts
    chains = set(attribute_chains(ast.parse(path.read_text())))
    global_generators = {c for c in chains if c.startswith(("np.random.", "numpy.random.", "random."))}
    allowed = {"np.random.SeedSequence", "np.random.Generator", "np.random.default_rng"}
    allowed |= SETS_GENERATORS.get(path.name, set())
    assert global_generators <= allowed, f"{path}: {global_generators - allowed}"
    if not inside:
        assert not any(c.endswith(("urandom", "token_bytes")) for c in chains), (
            f"{path} makes its own randomness"
        )


def imported_modules(statement):
    code = f"import sys; {statement}; print(' '.join(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = imported_modules("import discreet")
    assert not loaded & {"numpy", "scipy", "sklearn", "numba", "dp_accounting", "pyarrow", "pandas"}


def test_fitting_a_model_does_not_load_dp_accounting():
    loaded = imported_modules(
        "import numpy as np, discreet; "
        "discreet.PrivateLogisticRegression(classes=[0, 1]).fit(np.eye(4), [0, 1, 0, 1])"
    )
    assert "dp_accounting" not in loaded


def test_every_public_name_exists_and_is_documented():
    import discreet

    for name in discreet.__all__:
        thing = getattr(discreet, name)
        assert name == "__version__" or (thing.__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="no attribute"):
        _ = discreet.nonsense


def calls(tree):
    """Names of functions and methods as they are called."""
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


# Audits and benchmarks run plans on data that they made up; who gets which rows of a group is drawn by a key.
RUNS_INVENTED_DATA = {"audit", "bench"}
DRAWS_KEYS = {"groups.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_there_is_one_way_to_data(path):
    """A release is charged, and its noise is drawn, in `release` and nowhere else."""
    place = path.relative_to(SOURCE).parts
    made = calls(ast.parse(path.read_text()))
    if place != ("release.py",) and place[0] not in RUNS_INVENTED_DATA and path.name not in DRAWS_KEYS:
        assert not {"fresh_entropy", "entropy.fresh_entropy"} & set(made)
    if place != ("release.py",) and "privacy" not in place and place[:2] != ("cli", "ledger.py"):
        assert not [name for name in made if name.endswith(".charge") and name != "super().charge"]


def test_release_reads_in_order():
    """Check, charge, draw, run, bind: a step that moved would break the privacy argument."""
    tree = ast.parse((SOURCE / "release.py").read_text())
    (verb,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "carry_out")
    order = ["check", "charge", "fresh_entropy", "run", "carried.binding"]
    assert [name for name in calls(verb) if name in order] == order


def test_the_table_of_public_names_is_what_type_checkers_see():
    from discreet._api import HOMES

    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == HOMES | {"card": "discreet"}


def words(tree):
    return {getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(tree)}


def asks_for_the_class_of_a_loss(node, classes):
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        asked, kinds = node.args
        return ast.unparse(asked).split(".")[-1] == "loss" or words(kinds) & classes
    if isinstance(node, ast.Compare):  # type(loss) in (Logistic, ...)
        return ast.unparse(node.left).startswith("type(") and words(node.left) & {"loss"}
    return False


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_losses_ask_for_the_class_of_a_loss(path):
    """Elsewhere its `proved_for`, `family`, `kernel` and bounds say what holds for it."""
    from discreet import losses

    classes = {name for name in losses.__all__ if isinstance(getattr(losses, name), type)}
    if path.parent.name == "losses":
        return
    asked = [n for n in ast.walk(ast.parse(path.read_text())) if asks_for_the_class_of_a_loss(n, classes)]
    assert not asked, [f"{path}:{node.lineno}: {ast.unparse(node)}" for node in asked]


# -- one home for each idea ------------------------------------------------------------------------------------------


def sources():
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in MODULES}


def homes(pattern):
    return sorted(name for name, text in sources().items() if re.search(pattern, text, re.MULTILINE))


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r"^def carry_out\(", "release.py"),
        (r"^def open_rows\(", "records/open.py"),
        (r"^def checked_rows\(", "records/open.py"),
        (r"^def read_labels\(", "records/open.py"),
        (r"^def read_people\(", "estimators/groups.py"),
        (r"^def id_column\(", "tables/reading.py"),
        (r"sqlite3\.connect\(", "privacy/ledger/sqlite.py"),
        (r"\bdef transact\(", "privacy/ledger/sqlite.py"),
        (r"^(Array|Mask|Integers)\b.*=", "_typing.py"),
        (r"^_?SLACK\b|1 \+ 2(\.0)?\*\*-40", "privacy/guarantee.py"),
        (r"\b(triu|tril)_indices\(|\bnp\.(triu|tril)\(", "mechanisms/additive.py"),
        (r"^def \w+_signal\(|^def \w*(signal_to_noise|over_signal|over_noise)\(", "problem.py"),
        (r"^def (gamma|gradient_rounding|summation_rounding|worst_additions)\(", "records/bounds.py"),
    ],
)
def test_an_idea_has_one_home(pattern, home):
    """How data are read and released, transactions, types, slack, the sqrt(2) triangle, ratios, rounding."""
    assert homes(pattern) == [home]


DATA = {
    "X",
    "y",
    "rows",
    "data",
    "table",
    "frame",
    "column",
    "values",
    "labels",
    "groups",
    "user_items",
    "queries",
}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_kinds_of_data_are_distinguished_by_type(path):
    """A pandas column can have any name: ``hasattr`` on data may ask for one."""
    tree = ast.parse(path.read_text())
    asked = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "hasattr"
        and ast.unparse(node.args[0]).split(".")[-1] in DATA
    ]
    assert not asked


def test_folders_are_small():
    folders = {path.parent for path in MODULES}
    sizes = {folder.relative_to(SOURCE).as_posix(): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: size for name, size in sizes.items() if size - 1 > 14} == {}  # without __init__.py
    named = [path for path in SOURCE.glob("*.py") if not path.name.startswith("__")]
    assert len(named) <= 8


def test_slow_tests_exist():
    """What `make quick` leaves out; ``pytest --quick --note-slow`` writes the list anew."""
    tests = Path(__file__).parent
    listed = [line.split("::") for line in (tests / "slow.txt").read_text().splitlines()]
    files = {file: (tests.parent / file).read_text() for file in {file for file, *_ in listed}}
    assert [test for file, *_, test in listed if f"def {test}(" not in files[file]] == []
