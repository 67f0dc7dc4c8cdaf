"""Write the pages of the API reference when the site is built: one per public name, one per subpackage.

Docstrings are plain text with some reStructuredText: stars, bars and trailing underscores of formulas and attributes
are letters there, and are escaped before they are parsed.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import pkgutil
import re
from pathlib import Path
from typing import Any

from sphinx.util.inspect import stringify_signature

from discreet._api import HOMES

#: Headings of the front page of the reference, and the modules whose names they collect.
GROUPS = {
    "Classifiers and regressors": ("discreet.estimators", "discreet.additive", "discreet.losses"),
    "Any model, by votes of teachers": ("discreet.transfer",),
    "Recommenders and streams": ("discreet.recommend", "discreet.online"),
    "Tables": ("discreet.tables",),
    "Describing tables, choosing and evaluating models": (
        "discreet.description",
        "discreet.search",
        "discreet.evaluation",
        "discreet.intervals",
    ),
    "Privacy and budgets": ("discreet.privacy", "discreet.mechanisms"),
}
#: Subpackages whose names share a page.
PACKAGES = {
    "discreet.card": "Model files",
    "discreet.solvers": "Solvers",
    "discreet.losses": "Losses",
    "discreet.sets": "Sets",
    "discreet.mechanisms": "Mechanisms",
    "discreet.privacy.events": "Events",
    "discreet.privacy.accounting.accountants": "Accountants",
}
#: Names of NumPy that a package passes on.
FOREIGN = {"Array"}
LITERAL = re.compile(r"(``.*?``|`[^`]*`_?|:[\w:]+:`[^`]*`)")
FIELD = re.compile(r"( *)([a-z_]\w*(?:, [a-z_]\w*)*) : ")
UNDERLINE = re.compile(r"-{3,}")


def has_page(package: str, name: str) -> bool:
    """Whether a name of a package has a page of its own."""
    return HOMES.get(name, "").startswith(f"{package}.")


def exports(package: str) -> list[tuple[str, str]]:
    """The (module, name) of what a package exports: ``__all__``, or all public definitions of its modules."""
    module = importlib.import_module(package)
    if hasattr(module, "__all__"):
        return [
            (package, name) for name in module.__all__ if name not in FOREIGN and not has_page(package, name)
        ]
    modules = [module]
    if hasattr(module, "__path__"):
        found = [entry.name for entry in pkgutil.iter_modules(module.__path__) if not entry.ispkg]
        modules = [importlib.import_module(f"{package}.{name}") for name in found]
    return [
        (home.__name__, name)
        for home in modules
        for name, value in sorted(vars(home).items())
        if not name.startswith("_")
        and getattr(value, "__module__", None) == home.__name__
        and callable(value)
    ]


def directive(module: str, name: str) -> str:
    """The autodoc directive of one name."""
    value = getattr(importlib.import_module(module), name)
    full = f"{module}.{name}"
    if inspect.isclass(value):
        return f".. autoclass:: {full}\n   :members:\n   :inherited-members:\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {full}\n"
    return f".. autodata:: {full}\n   :no-value:\n"


def page(title: str, *parts: str) -> str:
    """A page with a title."""
    return "\n".join([title, "=" * len(title), "", *parts])


def table(names: list[str]) -> str:
    """A table of names with the first sentence of each."""
    return "\n".join([".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""])


def contents(names: list[str]) -> str:
    """The pages below this one, for the navigation only."""
    return "\n".join([".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names), ""])


def pages() -> dict[str, str]:
    """All pages of the reference by file name, without the suffix."""
    made = {name: page(name, directive("discreet", name)) for name in HOMES}
    front = ["Every public class and function. The pages are generated from docstrings.", ""]
    for title, modules in GROUPS.items():
        names = sorted(name for name, home in HOMES.items() if home.startswith(modules))
        front += [
            title,
            "-" * len(title),
            "",
            table([f"~discreet.{name}" for name in names]),
            contents(names),
        ]
    for package, title in PACKAGES.items():
        stem = package.removeprefix("discreet.")
        names = [
            (home, name) for home, name in exports(package) if name not in HOMES
        ]  # which have their own page
        about = (inspect.getdoc(importlib.import_module(package)) or "").partition("\n")[0]
        made[stem] = page(title, f"``{package}``. {about}", "", *(directive(*name) for name in names))
        front += [title, "-" * len(title), "", f":doc:`{package} <{stem}>`: {about}", "", contents([stem])]
    made["index"] = page("API reference", *front)
    return made


def write_pages(app: Any, config: Any) -> None:
    """Bring the folder of the reference up to date; files that stay the same are left alone."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    made = {folder / f"{name}.rst": text for name, text in pages().items()}
    for old in set(folder.glob("*.rst")) - set(made):
        old.unlink()
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def escaped(text: str) -> str:
    """Escape what would be markup, outside of literals."""
    pieces = LITERAL.split(text)
    pieces[::2] = [re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)


def is_type(line: str, below: str, field: re.Match[str]) -> bool:
    """Whether ``name : text`` names a type: then a sentence of its own follows, indented."""
    told = below.strip()
    follows = below.startswith(field[1] + " ") and not told[:1].islower()
    return bool(told) and follows and not line.rstrip().endswith((".", ",", ";"))


def tidy(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep the letters of formulas, and make a list of ``name : meaning`` lines that are in no section."""
    made: list[str] = []
    in_section, indent = False, ""  # the indent of the list item that is open, if any
    for line, below in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        in_section = in_section or bool(UNDERLINE.fullmatch(below.strip()))
        field = FIELD.match(line)
        if line.lstrip().startswith((">>>", "...", ".. ")) or UNDERLINE.fullmatch(line.strip()):
            made.append(line)
        elif field and in_section and is_type(line, below, field):
            made.append(field[0] + escaped(line[field.end() :]))
        elif field and in_section:  # a meaning, not a type
            made += [f"{field[1]}{field[2]}", f"{field[1]}    {escaped(line[field.end() :])}"]
        elif field:
            indent = field[1] + " "
            names = ", ".join(f"``{name}``" for name in field[2].split(", "))
            made += ["", f"{field[1]}* {names}: {escaped(line[field.end() :])}"]
        elif indent and line.startswith(indent):
            made.append(f"{indent} {escaped(line.lstrip())}")
        else:
            made += [""] * bool(indent) + [escaped(line)]
            indent = ""
    lines[:] = made


def separate(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Put a colon between a parameter and its meaning, where napoleon writes two hyphens."""
    lines[:] = [
        re.sub(r"^( *(?::\w+: +)?(?:\* )?\*\*.*?\*\*(?: \(.*?\))?) -- ", r"\1: ", line) for line in lines
    ]


def skip_foreign(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what other libraries define: their documentation has it."""
    function = (
        value.fget if isinstance(value, property) else inspect.unwrap(value) if callable(value) else value
    )
    module = getattr(function, "__module__", None) or ""
    return True if callable(function) and not module.startswith("discreet") else None


def constructor(
    app: Any, what: str, name: str, value: Any, options: Any, given: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """The declared parameters of an estimator, where its base class would show ``**given``."""
    if what != "class" or not dataclasses.is_dataclass(value):
        return None
    return stringify_signature(inspect.signature(value), show_annotation=False), returned


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before sources are listed, and tidy docstrings before napoleon reads them."""
    app.connect("config-inited", write_pages)
    app.connect("autodoc-process-docstring", tidy, priority=100)
    app.connect("autodoc-process-docstring", separate, priority=900)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-signature", constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
