"""Rules of the house that no single test would notice being broken."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "discreet"
MODULES = sorted(SOURCE.rglob("*.py"))
# Public synthetic data may use NumPy's generators; nothing that touches private data may.
MAKES_PUBLIC_DATA = {"cohort.py", "datasets.py"}


def attribute_chains(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_noise_is_drawn_only_in_mechanisms(path):
    if path.name in MAKES_PUBLIC_DATA:
        return
    inside = path.parent.name == "mechanisms"
    chains = set(attribute_chains(ast.parse(path.read_text())))
    global_generators = {c for c in chains if c.startswith(("np.random.", "numpy.random.", "random."))}
    allowed = {"np.random.SeedSequence", "np.random.Generator", "np.random.default_rng"}
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
