"""Declare commands, check option values, and share options between commands.

A command is one function under ``@command(name, help, description, argument(...), ...)``, listed in ``cli.COMMANDS``.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.display.console import note, say

NEIGHBORING = ("replace-one", "add-remove-one", "zero-out")  # spelled out: help must not import NumPy
AUDITED = {"logistic": "PrivateLogisticRegression", "svm": "PrivateLinearSVC"}  # by name, without a file
Argument = Callable[[Any], object]
Run = Callable[[argparse.Namespace], int | None]


# -- values of options, for argparse's ``type`` ------------------------------------------------------------------


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar known word, or an empty string.

    >>> did_you_mean("fti", ["fit", "plan"])
    "; did you mean 'fit'?"
    """
    words = {word.lstrip("-"): word for word in known}  # shared dashes are no similarity
    near = difflib.get_close_matches(text.lstrip("-"), list(words), 1, cutoff=0.6)
    return f"; did you mean {words[near[0]]!r}?" if near else ""


_TARGET = "the schema names the target, see `discreet schema template --target`"
_PEOPLE = "the schema names the column of people, see `discreet schema template --group`"
_NOISE = "noise comes from the operating system and is never repeated"
_TABLE = "pass the table without an option, right after the command"
_PENALTY = "--l2 is the penalty, 1 / (C * rows); by default it follows from public numbers"
_PYTHON = "it is an object, so it is set in Python"
HABITS = {  # options of other tools, and what to use here
    "--C": _PENALTY,
    "--alpha": _PENALTY,
    "--constraint": _PYTHON,
    "--data": _TABLE,
    "--delimiter": "use --separator for the fields of a CSV file",
    "--file": _TABLE,
    "--force": "--overwrite replaces a file",
    "--group": _PEOPLE,
    "--groups": _PEOPLE,
    "--input": _TABLE,
    "--label": _TARGET,
    "--max-iter": "the number of steps is part of the price and follows from public numbers",
    "--n-jobs": "OMP_NUM_THREADS limits the processors",
    "--output": "this command prints to standard output; add > FILE",
    "--random-state": _NOISE,
    "--schema": "the model file holds the schema",
    "--seed": _NOISE,
    "--student": f"{_PYTHON}; --teacher chooses the kind of teachers and student",
    "--target": _TARGET,
    "--verbose": "write it before the command: `discreet --verbose fit ...`",
    "--y": _TARGET,
}


_LETTERS = {
    "-d": "--delta",
    "-e": "--epsilon",
    "-k": "--key",
    "-l": "--ledger",
    "-m": "--model",
    "-o": "--output",
    "-s": "--schema",
    "-v": "--verbose",
}


COMMANDS = {  # names of commands elsewhere, and the command here
    "budget": "ledger",
    "convert": "export",
    "report": "card",
    "score": "evaluate",
    "summary": "show",
    "test": "evaluate",
    "train": "fit",
}


def advice(option: str, known: Iterable[str]) -> str:
    """Return what to use instead of an unknown option, or a similar option, or an empty string."""
    return f"; {HABITS[option]}" if option in HABITS else did_you_mean(option, known)


def unknown(what: str, text: str, known: Iterable[str]) -> str:
    """Return the error for an unknown name, with a suggestion or all known names.

    >>> unknown("model", "forest", ["logistic", "svm"])
    "there is no model 'forest'; there are logistic, svm"
    """
    words = list(known)
    advice = did_you_mean(text, words) or f"; there are {', '.join(words)}"
    return f"there is no {what} {text!r}{advice}"


def real(text: str) -> float:
    """Parse a finite number."""
    return _number(text, lambda value: True, "a finite number")


def positive(text: str) -> float:
    """Parse a finite number greater than 0."""
    return _number(text, lambda value: value > 0, "a finite number greater than 0")


def epsilon(text: str) -> float:
    """Parse a budget of at most 1e6: more protects nobody, and accountants run out of digits."""
    return _number(text, lambda value: 0 < value <= 1e6, "a number greater than 0 and at most 1000000")


def fraction(text: str) -> float:
    """Parse a number in [0, 1)."""
    return _number(text, lambda value: 0 <= value < 1, "a number of at least 0 and less than 1")


def count(text: str, most: int = 10**12) -> int:
    """Parse a whole number from 1 to ``most``."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, got {text!r}")
    return value


def columns(text: str) -> int:
    """Parse a number of columns, at most 10 million."""
    return count(text, 10**7)


def separator(text: str) -> str:
    r"""Parse the field separator of a CSV file: one character, ``tab`` or ``\t``."""
    mark = {"tab": "\t", r"\t": "\t"}.get(text, text)
    if len(mark) != 1 or mark in "\"'\r\n" or mark.isalnum():
        raise argparse.ArgumentTypeError(f"must be one character such as ';', or 'tab', got {text!r}")
    return mark


def _number(text: str, allowed: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and allowed(value)):
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return value


class InputFile(str):
    """The name of an input file; errors call it ``what``."""

    what: str


def input_file(what: str) -> Callable[[str], InputFile]:
    """Return the argument type of an input file, which errors call ``what``."""

    def read(text: str) -> InputFile:
        path = InputFile(text)
        path.what = what
        return path

    return read


# -- how a command is declared ----------------------------------------------------------------------------------


def argument(*names: str, **settings: Any) -> Argument:
    """Declare an argument of a command, as argparse's ``add_argument`` takes it."""
    return lambda parser: parser.add_argument(*names, **settings)


def one_of(*arguments: Argument, required: bool = True) -> Argument:
    """Declare arguments of which exactly one must be given, or at most one."""
    return lambda parser: _add(parser.add_mutually_exclusive_group(required=required), arguments)


def section(title: str, *arguments: Argument, text: str | None = None) -> Argument:
    """Declare a group of arguments with its own title and text in the help."""
    return lambda parser: _add(parser.add_argument_group(title, text), arguments)


def _add(parser: Any, arguments: tuple[Argument, ...]) -> None:
    for add in arguments:
        add(parser)


class Parser(argparse.ArgumentParser):
    """A parser that suggests similar commands, choices and options."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what, text = str(action.metavar or "choice").casefold(), str(value)
            if what == "command" and text in COMMANDS:
                raise argparse.ArgumentError(action, f"there is no command {text!r}; use {COMMANDS[text]!r}")
            raise argparse.ArgumentError(action, unknown(what, text, map(str, action.choices)))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse unknown arguments here, not in the parser above, which has other options."""
        self._given = [str(word) for word in (sys.argv[1:] if args is None else args)]
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(map(str, unknown))}")
        return found, unknown

    def error(self, message: str) -> Any:
        """Print the usage and one line about the error; exit with code 2."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        # The options of a command are checked by its own parser.
        given = getattr(self, "_given", []) if self._subparsers is None else []
        for name in (word.partition("=")[0] for word in given if word.startswith("--") or word in _LETTERS):
            if _LETTERS.get(name) in known:
                message = f"there is no option {name}; write {_LETTERS[name]}"
                continue
            name = _LETTERS.get(name, name)
            if name == "--" or any(one.startswith(name) for one in known):
                continue
            near = advice(name, known) or f"; `{self.prog} --help` lists all"
            if name == "--output" and self.prog.endswith(" key"):
                near = "; name the two files: `discreet key PRIVATE PUBLIC`"
            message = f"there is no option {name}{near}"
        if message.endswith("required: ACTION"):
            below = next(one for one in self._actions if one.metavar == "ACTION")
            message = f"name an action: {', '.join(map(str, below.choices or ()))}"
        super().error(message)


@dataclass(frozen=True)
class Command:
    """A command or an action of one: its help, its arguments, and the function it runs.

    run : called with the parsed arguments; returns the exit code, None for 0.
    actions : commands one level down; a command with actions runs nothing itself.
    prog : its name in the help, if different.
    examples : command lines for the end of the help.
    """

    name: str
    help: str
    description: str | None
    arguments: tuple[Argument, ...] = ()
    run: Run | None = None
    actions: tuple[Command, ...] = ()
    prog: str | None = None
    examples: tuple[str, ...] = ()

    def add_to(self, commands: Any, listed: bool = True) -> None:
        """Add the command to argparse; ``listed``: in the help one level up, too."""
        words: dict[str, Any] = {"help": self.help} if listed else {}
        parser = commands.add_parser(
            self.name,
            prog=self.prog,
            description=self.description,
            epilog="\n  ".join(["examples:", *self.examples]) if self.examples else None,
            formatter_class=_Formatter,
            **words,
        )
        _add(parser, self.arguments)
        if not self.actions:
            parser.usage = " ".join([parser.prog, *_needed(parser), "[options]"])
        if self.run is not None:
            parser.set_defaults(run=self.run)
        if self.actions:
            below = parser.add_subparsers(metavar="ACTION", required=True)
            for action in self.actions:
                action.add_to(below)


def _needed(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the required arguments, for the usage line."""
    for action in parser._actions:
        values = action.metavar or action.dest
        if not action.option_strings:
            yield str(values)
        elif action.required:
            yield f"{action.option_strings[-1]} {values}"
    for group in parser._mutually_exclusive_groups:
        if group.required:
            yield f"({' | '.join(action.option_strings[-1] for action in group._group_actions)})"


class _Formatter(argparse.HelpFormatter):
    """Wrap single paragraphs; keep texts with line breaks as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "\n".join(f"{indent}{line}" for line in text.splitlines())
        return super()._fill_text(text, width, indent)


def command(
    name: str,
    help: str,
    description: str | None,
    *arguments: Argument,
    prog: str | None = None,
    examples: tuple[str, ...] = (),
) -> Callable[[Run], Command]:
    """Make a command of the decorated function."""
    return lambda run: Command(name, help, description, arguments, run, prog=prog, examples=examples)


DELTA = argument(
    "--delta",
    type=fraction,
    metavar="D",
    help="probability that epsilon does not hold (default: 1 / rows^2)",
)
GUARANTEE = (
    argument(
        "--epsilon", type=epsilon, required=True, metavar="E", help="privacy budget; smaller is more private"
    ),
    DELTA,
    argument(
        "--neighboring",
        choices=NEIGHBORING,
        default="replace-one",
        help="which change of the data is hidden: a row replaced (default), added or removed, or blanked out",
    ),
)


def ledger_file(help: str) -> Argument:
    """Declare the option ``--ledger``."""
    return argument("--ledger", type=input_file("ledger"), metavar="FILE", help=help)


def schema_file(help: str, *, required: bool = False) -> Argument:
    """Declare the option ``--schema``."""
    kind = input_file("schema file")
    return argument("--schema", type=kind, required=required, metavar="FILE", help=help)


LEDGER = (
    ledger_file("ledger to charge, see `discreet ledger create`"),
    argument(
        "--max-rows",
        type=count,
        metavar="N",
        help="public upper bound on the number of rows, under add-remove-one",
    ),
)
DATA = (
    argument("data", type=input_file("file"), metavar="DATA", help="private table, .csv or .parquet"),
    argument(
        "--separator",
        type=separator,
        default=",",
        metavar="MARK",
        help="what separates the fields of a CSV file: ';', 'tab', ... (default: a comma)",
    ),
)
SCHEMA = schema_file("public domains and target, .toml, .json or .yaml", required=True)
MODEL_FILE = argument(
    "model", type=input_file("model file"), metavar="MODEL", help="model file written by `discreet fit`"
)
BAD_ROWS = argument(
    "--bad-rows",
    choices=("error", "null"),
    default="error",
    help="rows with invalid cells or labels: raise an error, which reveals something about the data, or replace "
    "them silently by records that contribute nothing (default: error)",
)


def to_write(what: str, *, required: bool = False, metavar: str = "FILE") -> tuple[Argument, Argument]:
    """Declare the options ``--output`` and ``--overwrite``."""
    return (
        argument("--output", required=required, metavar=metavar, help=what),
        argument("--overwrite", action="store_true", help="replace an existing file"),
    )


MAX_ROWS_PER_GROUP = argument(
    "--max-rows-per-group",
    type=count,
    metavar="K",
    help="largest number of rows used per person, if the schema has a group column",
)


def several_rows(group: str) -> str:
    """Return the error for a schema with a group column and no bound on rows per person."""
    return (
        f"the schema has a group column, {group!r}: a person can have several rows; pass --max-rows-per-group K, the "
        "largest number of rows to use per person"
    )


def budget_of(arguments: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Return what a release may spend, and on how many rows, as parameters of the function that makes it."""
    names = ("epsilon", "delta", "neighboring", "max_rows_per_group")
    given = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    return {**given, "n_samples": arguments.max_rows, **more}


def read(arguments: argparse.Namespace, columns: list[str] | None = None) -> Any:
    """Read these columns of the command's table."""
    from discreet.tables.reading import read_table

    bad_rows = getattr(arguments, "bad_rows", "error")
    return read_table(arguments.data, columns, bad_rows=bad_rows, separator=arguments.separator)


def read_grouped(
    arguments: argparse.Namespace, schema: Any, columns: list[str] | None = None
) -> tuple[Any, Any]:
    """Read the table and, if the schema has a group column, the person of each row."""
    max_rows = arguments.max_rows_per_group
    if schema.group is not None and max_rows is None:
        raise ValueError(several_rows(schema.group))
    if schema.group is None and max_rows is not None:
        raise ValueError('--max-rows-per-group needs a schema with a group column: group = "COLUMN"')
    table = read(arguments, schema.needed if columns is None else columns)
    return table, None if schema.group is None else schema.groups(table)


def schema_of(model: Any, path: str, instead: str) -> Any:
    """Return the schema saved with a model; ``instead`` is the advice if there is none."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        from discreet import card

        if hasattr(model, "model_"):
            instead = "a recommender is measured in Python, by discreet.recommend.metrics on ratings that were held out"
            raise card.CardError(f"{str(path)!r} is a recommender, which has no schema; {instead}")
        raise card.CardError(
            f"{str(path)!r} was saved without a schema, so it cannot read a table's columns; {instead}"
        )
    return schema


def rows_of(model: Any, table: Any) -> Any:
    """Return what a saved model predicts from: encoded rows, or the table itself."""
    return table if getattr(model, "reads_tables_", False) else model.schema_.transform(table)


@contextlib.contextmanager
def output(arguments: argparse.Namespace, *, size: int = 1 << 16, reason: str = "") -> Iterator[None]:
    """Reserve the file that --output names, if any, before anything is charged. Input files are never replaced.

    size : bytes that must be free.
    reason : why an existing file is not replaced without --overwrite.
    """
    from discreet._files import check_writable, reserved

    place = arguments.output
    if place is None:
        yield
        return
    if place == "-":
        raise ValueError("--output needs a file name, got '-'; write ./- for a file of that name")
    _keep_inputs(place, arguments)
    check_writable(place, size)
    with contextlib.ExitStack() as held:
        if not arguments.overwrite:
            try:
                held.enter_context(reserved(place))
            except FileExistsError:
                raise FileExistsError(
                    f"{place!r} exists{reason}; name another file, or pass --overwrite"
                ) from None
        yield


def _keep_inputs(place: str, arguments: argparse.Namespace) -> None:
    """Raise if --output is one of the input files, also under another name."""
    for given in vars(arguments).values():
        if not isinstance(given, InputFile) or not Path(place).exists() or not Path(given).exists():
            continue
        if Path(place).samefile(given):
            raise FileExistsError(
                f"--output {place!r} would replace the input file {str(given)!r}; name another file"
            )


def print_balance(arguments: argparse.Namespace, ledger: Any, statement: Any) -> None:
    """Print how much of the ledger is spent and how many more such charges fit, or that there is none."""
    if ledger is None:
        note("no --ledger was given: nothing tracks the total privacy loss of this data")
        return
    spent, left = ledger.balance(statement.event, statement.guarantee)
    say(f"In {arguments.ledger}, {spent}.", folded=True)
    say(f"There is {left}.", folded=True)
