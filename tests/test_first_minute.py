"""The first minute: README's lines in a new environment compile next to nothing and load no more than they need."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
COUNTED = """
import json, sys
import numba.core.event as event

class Compilations(event.Listener):
    names = []
    def on_start(self, started):
        self.names.append(str(started.data["dispatcher"]))
    def on_end(self, ended):
        pass

event.register("numba:compile", Compilations())
{script}
loaded = [name for name in ("altair", "dask", "onnx", "polars") if name in sys.modules]
print(json.dumps([len(Compilations.names), loaded]))
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
    compiled, loaded = json.loads(done.stdout.splitlines()[-1])
    assert compiled <= 2
    assert loaded == []
