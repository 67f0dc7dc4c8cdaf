"""Run the scripts of the gallery and store what they print and draw, so that the site is built without running them.

    python docs/_ext/gallery.py             # run all scripts, write their pages and pictures
    python docs/_ext/gallery.py stream      # only this one
    python docs/_ext/gallery.py --tiny      # run all at a tiny size and write nothing: do their conclusions hold?

A script is a list of cells that begin with ``# %%``: text (``# %% [markdown]``), code, or code that the page does not
show (``# %% hidden``). What a cell prints is shown below it, and so is a chart of Altair in its last line. Scripts
multiply the number of their records by ``SIZE``, which is 1, or a tenth when they are only checked; pages show the
number for 1.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.display.charts import ROOM

FOLDER = Path(__file__).parents[1] / "gallery"
TINY = 0.1
CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)
SIZED = re.compile(r"int\(([\d_]+) \* (?:SIZE|max\(SIZE, [\d.]+\))\)")


@dataclass(frozen=True)
class Cell:
    """One cell of a script: its kind (``markdown``, ``code`` or ``hidden``) and its text."""

    kind: str
    text: str


def cells(script: Path) -> list[Cell]:
    """The cells of a script."""
    _, *pieces = CELL.split(script.read_text(encoding="utf-8"))
    found = []
    for mark, text in zip(pieces[::2], pieces[1::2], strict=True):
        kind = mark.strip().strip("[]") or "code"
        if kind == "markdown":
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())
        found.append(Cell(kind, text.strip("\n")))
    return found


def shown(text: str) -> str:
    """The code of a cell as its page shows it, with the numbers of records of a full run."""
    return SIZED.sub(r"\1", text)


def svg(chart: Any) -> str:
    """The picture of a chart, in the colors and sizes of all pictures of the gallery."""
    import vl_convert

    words = {"labelColor": "#1b1b1f", "titleColor": "#1b1b1f", "labelFontSize": 12, "titleFontSize": 12}
    chart = chart.configure(background="white", padding=ROOM).configure_view(strokeOpacity=0)
    chart = chart.configure_title(anchor="start", fontSize=13, color="#1b1b1f", offset=12)
    chart = chart.configure_axis(
        **words, gridColor="#e4e4ea", titleFontWeight="normal", labelOverlap=True
    ).configure_legend(**words)
    return str(vl_convert.vegalite_to_svg(chart.to_dict()))


def run_cell(text: str, scope: dict[str, Any], name: str) -> tuple[str, Any]:
    """Run a cell; return what it printed and the value of its last line, if that is an expression."""
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(tree, name, "exec", dont_inherit=True), scope)
        value = (
            eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), scope)
            if last
            else None
        )
    return printed.getvalue().rstrip(), value


def title(chart: Any) -> str:
    """The title of a chart, or of its first layer that has one: what a reader without pictures is told."""
    found = [chart, *getattr(chart, "layer", ())]
    return next(str(part.title) for part in found if isinstance(part.title, str))


def page_of(script: Path, parts: list[str]) -> str:
    """A page of these parts."""
    source = f"The script of this page is {{download}}`{script.name} <{script.name}>`."
    return "\n\n".join([*parts, source]) + "\n"


def unrun(script: Path) -> str:
    """The page of a script without what it prints and draws."""
    found = [cell for cell in cells(script) if cell.kind != "hidden"]
    fenced = (f"```python\n{shown(cell.text)}\n```" if cell.kind == "code" else cell.text for cell in found)
    return page_of(script, list(fenced))


def run(script: Path, size: float = 1.0) -> tuple[str, dict[str, str]]:
    """Run a script in an empty folder; return its page and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, str] = {}
    scope: dict[str, Any] = {"SIZE": size, "__name__": "__gallery__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in cells(script):
            if cell.kind == "markdown":
                parts.append(cell.text)
                continue
            printed, value = run_cell(cell.text, scope, script.name)
            if cell.kind == "hidden":
                continue
            parts.append(f"```python\n{shown(cell.text)}\n```")
            if printed:
                printed = printed.replace(folder + os.sep, "")  # the folder is gone when the page is read
                parts.append(f"```text\n{printed}\n```")
            if hasattr(value, "to_dict") and hasattr(value, "configure_axis"):
                name = f"{script.stem}-{len(pictures) + 1}.svg"
                pictures[name] = svg(value)
                parts.append(f"![{title(value)}]({name})")
    return page_of(script, parts), pictures


def index(scripts: list[Path]) -> str:
    """The front page: one card per script, with its first picture, title and first sentence."""
    cards = []
    for script in scripts:
        title, _, rest = cells(script)[0].text.partition("\n")
        about = re.split(r"(?<=\.)\s", " ".join(rest.split()))[0]
        cards += [
            f":::{{grid-item-card}} {title.removeprefix('# ')}",
            f":img-top: {script.stem}-1.svg",
            f":img-alt: a chart from the page {title.removeprefix('# ')}",
            f":link: {script.stem}",
            ":link-type: doc",
            "",
            about,
            ":::",
            "",
        ]
    head = "# Gallery\n\nEach page is a script. The numbers and charts on it are what the script printed and drew.\n"
    grid = "\n".join(["::::{grid} 1 2 2 3", ":gutter: 3", "", *cards, "::::"])
    tree = "\n".join(["```{toctree}", ":hidden:", "", *(script.stem for script in scripts), "```"])
    return f"{head}\n{grid}\n\n{tree}\n"


def main() -> None:
    """Run the scripts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="scripts, without .py")
    parser.add_argument("--tiny", action="store_true", help="a tenth of the records; write nothing")
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    scripts = sorted(FOLDER.glob("*.py"))
    for script in scripts:
        if options.names and script.stem not in options.names:
            continue
        start = time.perf_counter()
        page, pictures = run(script, TINY if options.tiny else 1.0)
        print(f"{script.stem}: {len(pictures)} pictures, {time.perf_counter() - start:.0f} s", flush=True)
        if options.tiny:
            continue
        for old in FOLDER.glob(f"{script.stem}-*.svg"):
            old.unlink()
        for name, picture in pictures.items():
            (FOLDER / name).write_text(picture, encoding="utf-8")
        (FOLDER / f"{script.stem}.md").write_text(page, encoding="utf-8")
    if not options.tiny:
        ready = [script for script in scripts if (FOLDER / f"{script.stem}.md").exists()]
        (FOLDER / "index.md").write_text(index(ready), encoding="utf-8")


if __name__ == "__main__":
    main()
