"""Results of single measurements: one page per command in ``results/``, section by section.

A command that measures some of its sections leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from discreet import __version__

RESULTS = Path(__file__).parent / "results"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def keep(name: str, title: str, sections: Mapping[str, str], folder: Path | None = None) -> Path:
    """Print sections and write them to the page of a command, in the place of older ones."""
    path = (RESULTS if folder is None else folder) / f"{name.replace('_', '-')}.md"
    found = read(path) | {
        heading: f"{text}\n\nMeasured with discreet {__version__}." for heading, text in sections.items()
    }
    parts = [f"# {title}", f"Written by `python -m benchmarks.{name}`."]
    parts += [f"## {heading}\n\n{text}" for heading, text in found.items()]
    page = "\n\n".join(parts) + "\n"
    path.write_text(page, encoding="utf-8")
    print(page)
    return path


def read(path: Path) -> dict[str, str]:
    """The sections of a page by heading."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    parts = (part.partition("\n\n") for part in text.split("\n## ")[1:])
    return {heading: body.strip() for heading, _, body in parts}
