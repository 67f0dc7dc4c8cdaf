"""Mutants of the code that privacy rests on: which of them no test notices.

A mutant is a module of `discreet.mechanisms` or `discreet.privacy` with one number, comparison, sign or operator
changed. Each runs in a forked process in which only that module is exchanged, against a few cases of the tests that
mirror it and, if these notice nothing, against every case of the tests of its folder and of what uses it; nothing is
written to the sources. Run ``python -m benchmarks.mutation --count 60 --seed 0`` (a few seconds each), or name
modules: ``python -m benchmarks.mutation mechanisms/additive.py``. Survivors are printed: either the change makes no
difference that anybody could see (say so), or a test is missing (write it). ``--write`` keeps the list in
benchmarks/results/mutation.md, and what was written there under the heading Read. ``--resume FILE`` continues a run
that ``--minutes`` ended, from the answers kept in FILE.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "discreet"
RESULTS = ROOT / "benchmarks" / "results" / "mutation.md"
FOLDERS = ("mechanisms", "privacy")
_SECONDS = 300  # a mutant that does not end is noticed
#: What an operator becomes.
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_NAMES = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor"}
#: Text for people, and what types and imports need, is left alone.
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.AnnAssign, ast.Assert, ast.Import, ast.ImportFrom)
_LEFT_OUT = ("__init__.py", "page.py")
_FOR_PEOPLE = ("__str__", "__repr__", "_repr_html_", "describe", "to_html")


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the place, and the line before and after."""

    path: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        name = self.path.relative_to(SOURCES).as_posix()
        return f"{name}:{self.line}: `{self.before}` became `{self.after}`"


def places(path: Path) -> list[int]:
    """Numbers of the nodes of a module that can be changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [place for place, node in enumerate(_changeable(tree)) if _change(node) is not None]


def mutated(path: Path, place: int) -> Mutant:
    """The module with one node changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    spot = next(node for number, node in enumerate(_changeable(tree)) if number == place)
    before, change = ast.unparse(spot), _change(spot)
    assert change is not None
    change(spot)
    source = ast.unparse(ast.fix_missing_locations(tree))
    return Mutant(path, spot.lineno, before[:100], ast.unparse(spot)[:100], source)


def _changeable(node: ast.AST) -> Iterator[Any]:
    """Nodes that may change, in a fixed order."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SKIPPED) or getattr(child, "name", None) in _FOR_PEOPLE:
            continue
        if isinstance(child, ast.Compare | ast.BinOp | ast.BoolOp | ast.Call | ast.Constant | ast.UnaryOp):
            yield child
        if isinstance(child, ast.FunctionDef):
            for part in child.body:
                yield from _within(part)
        else:
            yield from _changeable(child)


def _within(node: ast.stmt) -> Iterator[Any]:
    """The same of a statement, which is not its own child."""
    yield from _changeable(ast.Module(body=[node], type_ignores=[]))


def _change(node: Any) -> Callable[[Any], None] | None:
    """A function that changes the node in place; None if there is nothing to change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        return lambda spot: spot.ops.__setitem__(0, SWAPS[type(spot.ops[0])]())
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        return lambda spot: setattr(spot, "op", SWAPS[type(spot.op)]())
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in _NAMES:
        return _rename
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return lambda spot: setattr(spot, "op", ast.UAdd())
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return lambda spot: setattr(spot, "value", spot.value * 2 if spot.value else 1)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return lambda spot: setattr(spot, "value", not spot.value)
    return None


def _rename(spot: Any) -> None:
    name = "id" if isinstance(spot.func, ast.Name) else "attr"
    setattr(spot.func, name, _NAMES[getattr(spot.func, name)])


#: Modules that are tested by those that use them.
_USERS = {
    "mechanisms/noisy_vector.py": ("evaluation/test_evaluate.py", "description/test_describe.py"),
    "mechanisms/recording.py": ("audit/test_replay.py", "mechanisms/test_reporting.py"),
    "privacy/statement.py": ("card/test_card.py", "card/test_card_trust.py"),
    "privacy/proofs.py": ("privacy/test_proofs.py",),
}


def tests_of(path: Path) -> tuple[list[Path], list[Path]]:
    """The tests that mirror a module, or else those of its folder; and all that could notice a change."""
    name = path.relative_to(SOURCES)
    folder = ROOT / "tests" / name.parent
    own, around = folder / f"test_{path.stem}.py", sorted(folder.glob("test_*.py"))
    users = [ROOT / "tests" / one for one in _USERS.get(name.as_posix(), ())]
    return ([own] if own.exists() else around), [*around, *users]


class _Exchanged(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from changed source, and leaves all others alone."""

    def __init__(self, mutant: Mutant) -> None:
        parts = mutant.path.relative_to(SOURCES.parent).with_suffix("").parts
        self.name, self.mutant = ".".join(parts).removesuffix(".__init__"), mutant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.mutant.path, loader=self)

    def get_source(self, fullname: str) -> str:
        return self.mutant.source

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.mutant.path)
        exec(compile(self.mutant.source, str(self.mutant.path), "exec"), module.__dict__)


def noticed(mutant: Mutant, seconds: int = _SECONDS) -> bool:
    """Whether a test fails, or does not end."""
    own, all_of_them = tests_of(mutant.path)
    every = ["--every-case", "-m", "not nightly"]
    return _fails(mutant, own, [], seconds) or _fails(mutant, all_of_them, every, seconds)


def _fails(mutant: Mutant, tests: Sequence[Path], options: Sequence[str], seconds: int) -> bool:
    child = os.fork()
    if child == 0:
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            sys.meta_path.insert(0, _Exchanged(mutant))
            import pytest

            os.chdir(ROOT)
            plain = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
            os._exit(int(pytest.main([*plain, *options, *map(str, tests)])))
        except BaseException:
            os._exit(3)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def chosen(names: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """So many mutants of the named modules, or of all, drawn at random."""
    paths = [SOURCES / name for name in names] or [
        path for folder in FOLDERS for path in sorted((SOURCES / folder).rglob("*.py"))
    ]
    found = [(path, place) for path in paths if path.name not in _LEFT_OUT for place in places(path)]
    return [mutated(*spot) for spot in random.Random(seed).sample(found, min(count, len(found)))]


def main() -> int:
    """Run mutants and print the survivors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description="mutants")
    parser.add_argument("modules", nargs="*", help="below src/discreet, such as mechanisms/additive.py")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="answers of the run so far, kept and continued"
    )
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    for name in ("numpy", "scipy.stats", "sklearn.base", "hypothesis", "pytest", "numba"):
        importlib.import_module(name)  # once, for all forks
    begin, survivors, tried, kept = time.monotonic(), [], 0, arguments.resume
    known: dict[str, bool] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    for mutant in chosen(arguments.modules, arguments.count, arguments.seed):
        if str(mutant) not in known:
            if time.monotonic() - begin > 60 * arguments.minutes:
                break
            known[str(mutant)] = noticed(mutant)
            print("noticed " if known[str(mutant)] else "SURVIVED", mutant, flush=True)
            if kept is not None:
                kept.write_text(json.dumps(known, indent=0))
        tried += 1
        survivors += [] if known[str(mutant)] else [mutant]
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        "# Mutants",
        "",
        f"Written by `python -m benchmarks.mutation --count {arguments.count} --seed {arguments.seed} --write`, {day}.",
        "",
        f"{tried} mutants, {tried - len(survivors)} noticed. The others, which no test could tell from the original:",
        "",
        *(f"* {mutant}" for mutant in survivors),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    if RESULTS.exists() and "## Read" in (old := RESULTS.read_text(encoding="utf-8")):
        text += "\n## Read" + old.partition("## Read")[2]
    print(text)
    if arguments.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
