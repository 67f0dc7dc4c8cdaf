"""Show the result tables of the benchmarks as pages of the site; the sources link to them where they are written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

FRONT = """# Results

Tables as the commands of [benchmarks](../benchmarks.md) wrote them.

```{toctree}
:glob:
:maxdepth: 1

*
```
"""


def copy_tables(app: Any, config: Any) -> None:
    """Copy the tables next to the guides, with a front page."""
    source, folder = Path(app.srcdir).parent / "benchmarks" / "results", Path(app.srcdir) / "results"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for table in sorted(source.glob("*.md")):
        shutil.copy2(table, folder)
    (folder / "index.md").write_text(FRONT, encoding="utf-8")


def link_tables(app: Any, name: str, source: list[str]) -> None:
    """Lead links to the copies."""
    text = source[0].replace("](../../benchmarks/results/", "](../results/")
    source[0] = text.replace("](../benchmarks/results/", "](results/")


def setup(app: Any) -> dict[str, bool]:
    """Copy before sources are listed."""
    app.connect("config-inited", copy_tables)
    app.connect("source-read", link_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
