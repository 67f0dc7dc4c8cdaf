"""Recompute what this package claims and write it down: ``attestation.json``, ``attestation.html``, ``sbom.json``.

``make attest`` takes less than an hour on two cores: exact audits, a replay of every row of the audit table and an
attack on it and on its twin, the tests of all lemmas, a thousand kills, ten thousand fuzzed inputs, two builds.
``make attest-full`` attacks every row for as long as the table asks, with ten times as many kills and inputs, and runs
overnight.
``discreet attest attestation.json`` checks the file against an installed package. Names of parts (lemmas, exact,
audited, kills, fuzz, tests, wheel, outside) run these alone and print what they find.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import discreet
from benchmarks.attest import build, exact, faults, figures, fuzz, outside
from benchmarks.attest.audited import audited
from benchmarks.attest.page import page, summary
from discreet._files import write_atomically
from discreet.card.attestation import (
    LIST,
    TRIED,
    charged,
    list_of,
    missing,
    proof_hashes,
    sealed,
    sources,
    verify_attestation,
)
from discreet.privacy.proofs import PROVED_BY

ROOT = build.ROOT
RESULTS = ROOT / "benchmarks" / "results" / "attestation.md"
#: What no part of this recomputes, whatever the options.
NEVER = (
    "that the operating system's random numbers are unpredictable",
    "time, memory and power of a fit, which depend on the data",
    "neighbors that nobody tried, where no worst pair is known",
    "proofs: they are read by people; here they are only found, hashed and exercised",
)


def steps(full: bool, jobs: int, write: bool = False) -> dict[str, Callable[[], Any]]:
    """The parts by name; tools of others come last, because they price the claims."""
    limits: dict[str, Any] = {"runs": 6000, "seconds": 40.0 if full else 8.0, "twin_seconds": 40.0}
    tried = TRIED["full" if full else "short"]
    return {
        "lemmas": lemmas,
        "exact": lambda: exact.as_dicts(exact.rows()),
        "audited": lambda: audited(jobs, write, **limits),
        "kills": lambda: faults.kills(tried["kills"]).to_dict(),
        "fuzz": lambda: fuzz.fuzz(tried["fuzz"]).to_dict(),
        "tests": lambda: tested(jobs),
        "wheel": build.wheels,
    }


def attested(full: bool, jobs: int, write: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """All parts, as they go into the file."""
    body: dict[str, Any] = {}
    spent = {}
    for name, step in steps(full, jobs, write).items():
        begin = time.perf_counter()
        body[name] = step()
        spent[name] = time.perf_counter() - begin
        say(f"{name}: {spent[name]:.0f} s")
    found = body.pop("audited")
    body |= {part: [line[part] for line in found] for part in ("claims", "replays", "attacks")}
    begin = time.perf_counter()
    body["outside"] = outside.as_dicts(outside.everything(list(charged(body["claims"]))))
    spent["outside"] = time.perf_counter() - begin
    say(f"outside: {spent['outside']:.0f} s")
    return {
        "version": discreet.__version__,
        "commit": build.commit(),
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "mode": "full" if full else "short",
        "python": platform.python_version(),
        "packages": {
            name: importlib.metadata.version(name) for name in ("numpy", "scipy", "numba", "scikit-learn")
        },
        "sources": sources(),
        "proofs": proof_hashes(),
        **body,
        "figures": figures.stored(),
        "seconds": {name: round(value, 1) for name, value in spent.items()},
        "not_tested": [*NEVER, *_left_out(body, full)],
    }


def _left_out(body: Mapping[str, Any], full: bool) -> Iterator[str]:
    if not full:
        yield "attacks of more than eight seconds on a row; see make attest-full"
    for line in body["outside"]:
        if line["verdict"] == "skipped":
            yield f"{line['tool']} on {line['subject']}: {line['note']}"
    if body["kills"]["left_out"]:
        yield body["kills"]["left_out"]
    yield "power cuts, and ledgers on network file systems, which the documentation rules out"
    if "skipped" in body["wheel"]:
        yield f"reproducible build: {body['wheel']['skipped']}"


# -- lemmas ------------------------------------------------------------------------------------------------------------


def lemmas() -> dict[str, Any]:
    """Every lemma in use: which constants it proves, and which tests exercise it."""
    tests = exercised(ROOT / "tests")
    used: dict[str, list[str]] = {}
    for part, names in PROVED_BY.items():
        for name in names:
            used.setdefault(name, []).append(part)
    return {name: {"proves": parts, "tests": tests.get(name, [])} for name, parts in sorted(used.items())}


def exercised(folder: Path) -> dict[str, list[str]]:
    """Tests by the lemmas that their markers name; read, not imported."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.lemma(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and getattr(mark.func, "attr", "") == "lemma":
                    test = f"{path.relative_to(folder.parent).as_posix()}::{node.name}"
                    for told in mark.args:
                        found.setdefault(ast.literal_eval(told), []).append(test)
    return found


def tested(jobs: int) -> dict[str, Any]:
    """Run the tests that name lemmas, and count."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        str(jobs),
        "-m",
        "lemma",
        "tests",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=_environment())
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-200:]
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)
    }
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    return {"passed": counts.get("passed", 0), "failed": failed or int(done.returncode != 0), "said": last}


def _environment() -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def main() -> int:
    """Write the three files; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attest", description="recompute every claim")
    parser.add_argument("parts", nargs="*", help="run and print these alone, and write nothing")
    parser.add_argument("--full", action="store_true", help="attack every row, kill ten thousand writers")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument(
        "--write",
        action="store_true",
        help="keep rows and a summary in benchmarks/results, and the list of all rows in the package",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "attestation", metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.parts:
        known = steps(arguments.full, arguments.jobs)
        known["outside"] = lambda: outside.as_dicts(outside.everything())
        for part in arguments.parts:
            print(json.dumps(known[part](), indent=1))
        return 0
    arguments.output.mkdir(parents=True, exist_ok=True)
    body = attested(
        arguments.full,
        arguments.jobs,
        arguments.write,
        lambda text: print(text, file=sys.stderr, flush=True),
    )
    if arguments.write:
        write_atomically(LIST, list_of(body).encode())
        write_atomically(RESULTS, summary(body, list(missing(body))).encode())
    materials = json.dumps(build.bill_of_materials(), indent=2).encode()
    write_atomically(arguments.output / "sbom.json", materials)
    found = sealed({**body, "sbom": build.digest(materials)})
    write_atomically(
        arguments.output / "attestation.json", json.dumps(found, indent=1, allow_nan=False).encode()
    )
    write_atomically(arguments.output / "attestation.html", page(body, list(missing(body))).encode())
    checked = verify_attestation(arguments.output / "attestation.json")
    print(checked)
    return 0 if checked.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
