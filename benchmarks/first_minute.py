"""The first minute: README's ten lines cold, and ``discreet --help``, in a fresh process each.

    python -m benchmarks.first_minute [--python PATH] [--repeats 5] [--output FILE]

A process is cold: nothing of numba is cached. Both the seconds of the clock and those of the processor (user and
system) are printed, each the least of several runs; on a busy machine only the latter mean much. ``--python`` names
the interpreter of another environment, such as a new one with the run-time requirements alone, which then sees what is
installed there and nothing of this folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
LIMITS = {"first fit, cold": 3.0, "script, cold": 5.0, "script, again": 5.0, "discreet --help": 0.2}
_FIT = "model.fit(X, y)"


def script() -> str:
    """README's ten lines, with the seconds of the fit, by clock and processor, printed at the end."""
    found = re.search(r"## Ten lines\n\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    now = "(time.perf_counter(), time.process_time())"
    lines = found[1].replace(_FIT, f"began = {now}; {_FIT}; ended = {now}")
    return f"import json, time\n{lines}\nprint(json.dumps([b - a for a, b in zip(began, ended)]))"


Took = tuple[float, float]  # seconds of the clock and of the processor


def seconds(command: list[str], folder: str, cache: str) -> tuple[Took, str]:
    """Seconds of a command, and what it printed."""
    outside = command[0] != sys.executable
    environment = {
        **{name: value for name, value in os.environ.items() if not (outside and name == "PYTHONPATH")},
        "NUMBA_CACHE_DIR": cache,
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout


def measured(python: str, repeats: int) -> dict[str, Took]:
    """The least seconds of every line of `LIMITS`."""
    found: dict[str, list[Took]] = {name: [] for name in LIMITS}
    command = [python, "-W", "ignore", "-c", script()]
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("script, cold", "script, again"):
                Path(folder, "budget.db").unlink(missing_ok=True)
                took, printed = seconds(command, folder, f"{folder}/cache")
                found[name].append(took)
                if name == "script, cold":
                    found["first fit, cold"].append(tuple(json.loads(printed.splitlines()[-1])))
            found["discreet --help"].append(seconds([python, "-m", "discreet", "--help"], folder, folder)[0])
    return {
        name: (min(wall for wall, _ in took), min(spent for _, spent in took)) for name, took in found.items()
    }


def report(found: dict[str, Took]) -> str:
    """A table of what was measured against the limits."""
    lines = ["| | seconds | at most | processor seconds |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {wall:.2f} | {LIMITS[name]:g} | {spent:.2f} |" for name, (wall, spent) in found.items()
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, metavar="PATH")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument("--output", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    found = measured(arguments.python, arguments.repeats)
    print(report(found), end="")
    if arguments.output is not None:
        text = "# The first minute\n\nWritten by `python -m benchmarks.first_minute`: the least of "
        text += f"{arguments.repeats} runs, by the clock and by the processor.\n\n"
        text += report(found)
        arguments.output.write_text(text, encoding="utf-8")
    return int(any(wall > LIMITS[name] for name, (wall, _) in found.items()))


if __name__ == "__main__":
    sys.exit(main())
