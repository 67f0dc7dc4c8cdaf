"""How a command is declared, and the options that several commands share.

A command is one function under ``@command(name, help, description, argument(...), ...)``, listed in ``cli.COMMANDS``.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEIGHBORING = ("replace-one", "add-remove-one", "zero-out")  # spelled out: help must not import NumPy
MODELS = {"logistic": "PrivateLogisticRegression", "svm": "PrivateLinearSVC"}
Argument = Callable[[Any], object]
Run = Callable[[argparse.Namespace], int | None]


def argument(*names: str, **settings: Any) -> Argument:
    """An argument of a command, as argparse's ``add_argument`` takes it."""
    return lambda parser: parser.add_argument(*names, **settings)


def one_of(*arguments: Argument) -> Argument:
    """Arguments of which exactly one must be given."""
    return lambda parser: _add(parser.add_mutually_exclusive_group(required=True), arguments)


def section(title: str, *arguments: Argument) -> Argument:
    """Arguments under a title of their own in the help."""
    return lambda parser: _add(parser.add_argument_group(title), arguments)


def _add(parser: Any, arguments: tuple[Argument, ...]) -> None:
    for add in arguments:
        add(parser)


@dataclass(frozen=True)
class Command:
    """A command or an action of one: its words in the help, its arguments, and what it runs.

    run : called with the parsed arguments; what it returns is the exit code, None for 0.
    actions : commands one level down; a command with actions runs nothing itself.
    prog : how the help names it, where that is not its name.
    """

    name: str
    help: str
    description: str | None
    arguments: tuple[Argument, ...] = ()
    run: Run | None = None
    actions: tuple[Command, ...] = ()
    prog: str | None = None

    def add_to(self, commands: Any) -> None:
        """Declare the command to argparse."""
        parser = commands.add_parser(self.name, prog=self.prog, help=self.help, description=self.description)
        _add(parser, self.arguments)
        if self.run is not None:
            parser.set_defaults(run=self.run)
        if self.actions:
            below = parser.add_subparsers(metavar="ACTION", required=True)
            for action in self.actions:
                action.add_to(below)


def command(
    name: str, help: str, description: str | None, *arguments: Argument, prog: str | None = None
) -> Callable[[Run], Command]:
    """Make a command of the function below."""
    return lambda run: Command(name, help, description, arguments, run, prog=prog)


def positive(text: str) -> float:
    """A finite number greater than 0, for argparse."""
    return _number(text, lambda value: value > 0, "a finite number greater than 0")


def epsilon(text: str) -> float:
    """A budget, for argparse; beyond the largest nothing is promised and no accountant has digits enough."""
    return _number(text, lambda value: 0 < value <= 1e6, "greater than 0 and at most 1000000")


def fraction(text: str) -> float:
    """A number in [0, 1), for argparse."""
    return _number(text, lambda value: 0 <= value < 1, "at least 0 and less than 1")


def count(text: str, most: int = 10**12) -> int:
    """A whole number from 1 to ``most``, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, got {text!r}")
    return value


def columns(text: str) -> int:
    """A number of columns that can be planned for, for argparse."""
    return count(text, 10**7)


def _number(text: str, allowed: Any, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and allowed(value)):
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return value


GUARANTEE = (
    argument(
        "--epsilon", type=epsilon, required=True, metavar="E", help="privacy budget; smaller is more private"
    ),
    argument(
        "--delta", type=fraction, metavar="D", help="probability of exceeding epsilon (default: 1 / rows^2)"
    ),
    argument(
        "--neighboring", choices=NEIGHBORING, default="replace-one", help="which data sets must look alike"
    ),
)
LEDGER = (
    argument("--ledger", metavar="FILE", help="ledger to charge, see `discreet ledger create`"),
    argument("--max-rows", type=count, metavar="N", help="public bound on the rows, under add-remove-one"),
)
MODEL = (
    argument("--model", choices=tuple(MODELS), default="logistic", help="default: logistic"),
    argument("--solver", default="auto", metavar="NAME", help="default: auto, by public facts"),
    argument(
        "--feature-bound",
        type=positive,
        metavar="R",
        help="longest row norm (default: what the schema allows)",
    ),
    argument("--l2", type=positive, metavar="L", help="ridge coefficient (default: by public rule)"),
    argument("--no-intercept", action="store_true", help="fit no constant term"),
)
MAX_ROWS_PER_GROUP = argument(
    "--max-rows-per-group",
    type=count,
    metavar="K",
    help="rows of one person that are used at most, if the schema has a group column",
)


def check_max_rows(arguments: argparse.Namespace) -> None:
    """Refuse a bound on the rows where their number is public and no bound would be used."""
    if arguments.max_rows is not None and arguments.neighboring != "add-remove-one":
        raise ValueError(
            f"--max-rows is for --neighboring add-remove-one: under {arguments.neighboring} the number of rows is "
            "public and is used as it is; leave it out"
        )


def people(schema: Any, table: Any, max_rows: int | None) -> Any:
    """Whose row each row is, if the schema says that a person can have several."""
    if schema.group is not None and max_rows is None:
        raise ValueError(
            f"the schema's group column {schema.group!r} says that a person can have several rows; say how many of "
            "them may be used with --max-rows-per-group K"
        )
    if schema.group is None and max_rows is not None:
        raise ValueError('--max-rows-per-group needs a schema with a group column: group = "COLUMN"')
    return None if schema.group is None else schema.groups(table)


def model_and_schema(path: str, instead: str) -> tuple[Any, Any]:
    """A saved model and the schema that reads a table for it; ``instead`` says what to do where it has none."""
    from discreet import card

    model = card.load(path)
    schema = getattr(model, "schema_", None)
    if schema is None:
        raise card.CardError(
            f"{path!r} was saved without a schema, so it cannot read a table's columns; {instead}"
        )
    return model, schema


@contextlib.contextmanager
def output(
    arguments: argparse.Namespace, *inputs: str | None, size: int = 1 << 16, reason: str = ""
) -> Iterator[None]:
    """Hold the place that --output names, if it does, until it is written; before anything is charged.

    inputs : files that are read, and must not be replaced, whatever they are called.
    size : bytes that must be free.
    reason : why an existing file is not replaced unless asked for.
    """
    from discreet._files import check_writable, reserved

    place = arguments.output
    if place is None:
        yield
        return
    if place == "-":
        raise ValueError("--output writes to a file, and '-' is none; name one, or ./- if that is its name")
    _keep_inputs(place, inputs)
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


def _keep_inputs(place: str, inputs: tuple[str | None, ...]) -> None:
    """Refuse to write where one of the files that are read lies, under whatever name."""
    for given in inputs:
        if (
            given is not None
            and Path(place).exists()
            and Path(given).exists()
            and Path(place).samefile(given)
        ):
            raise FileExistsError(
                f"--output {place!r} would replace {given!r}, which is read; name another file"
            )


def tell_balance(arguments: argparse.Namespace, ledger: Any) -> None:
    """What a charge left in the ledger, or that nobody keeps count."""
    from discreet.display.console import note, paragraph

    if ledger is None:
        note("no --ledger was given: nothing keeps count of what this data has been used for")
    else:
        paragraph(f"Left in {arguments.ledger}: {ledger.remaining()}")
