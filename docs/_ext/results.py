"""Show the results of the benchmarks in the site; the sources link to them where they are written.

Tables become pages. The benchmark page, which is HTML already, is copied with links back to the site.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

PAGE = "benchmark/index.html"
KIND = '<p class="kind">'
BACK = '<a href="../index.html">discreet</a> · <a href="../reference.html">Reference</a> · '
FRONT = """# Results

These tables were written by the commands listed under [benchmarks](../benchmarks.md). No figure was typed in by hand.

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
    text = text.replace("](../benchmarks/results/", "](results/")
    source[0] = re.sub(rf"\[([^]]+)\]\({PAGE}\)", rf'<a href="{PAGE}">\1</a>', text)


def copy_page(app: Any, error: Exception | None) -> None:
    """Copy the benchmark page; its pictures are in it."""
    if error is None and app.builder.format == "html":
        target = Path(app.outdir) / PAGE
        target.parent.mkdir(exist_ok=True)
        page = (Path(app.srcdir) / PAGE).read_text(encoding="utf-8")
        target.write_text(page.replace(KIND, KIND + BACK, 1), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Copy tables before sources are listed, and the page when all others are there."""
    app.connect("config-inited", copy_tables)
    app.connect("source-read", link_tables)
    app.connect("build-finished", copy_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
