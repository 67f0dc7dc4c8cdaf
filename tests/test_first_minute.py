"""The first minute: README's lines in a new environment compile next to nothing and load no more than they need."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import first_minute

README = Path(__file__).parents[1] / "README.md"
COUNTED = """
import json, sys
sys.modules["pandas"] = None  # scikit-learn imports it where it is installed, and it pyarrow
import sklearn.utils
del sys.modules["pandas"]
import numba.core.event as event

class Compilations(event.Listener):
    names = []
    def on_start(self, started):
        self.names.append(str(started.data["dispatcher"]))
    def on_end(self, ended):
        pass

event.register("numba:compile", Compilations())
{script}
unneeded = ("altair", "dask", "onnx", "polars", "pyarrow")
loaded = [name for name in unneeded if name in sys.modules]
own = sum(name.partition(".")[0] == "discreet" for name in sys.modules)
print(json.dumps([len(Compilations.names), loaded, own]))
"""


def test_the_ten_lines_compile_one_sampler_and_load_no_optional_package(tmp_path):
    script = re.search(r"## Ten lines\n\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNTED.format(script=script[1])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    compiled, loaded, own = json.loads(done.stdout.splitlines()[-1])
    assert compiled == 1  # the sampler of noise
    assert loaded == []
    assert own <= 145


def test_help_loads_no_numbers():
    """`discreet --help` answers within a fifth of a second: nothing heavy is imported."""
    heavy = '("numpy", "scipy", "sklearn", "numba", "pyarrow", "rich")'
    code = (
        "import sys\nfrom discreet.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy} if name in sys.modules], len(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found, count = done.stdout.splitlines()[-1].rsplit(" ", 1)
    assert found == "[]"
    assert int(count) < 250


def test_the_kept_command_times_the_fit_of_the_ten_lines():
    lines = first_minute.script()
    compile(lines, "README.md", "exec")
    assert lines.count("time.perf_counter(), time.process_time()") == 2
    assert set(first_minute.LIMITS.values()) == {3.0, 5.0, 0.2}


def test_the_kept_command_judges_by_the_clock():
    found = {name: (limit / 2, 2 * limit) for name, limit in first_minute.LIMITS.items()}
    assert "| script, cold | 2.50 | 5 | 10.00 |" in first_minute.report(found)
