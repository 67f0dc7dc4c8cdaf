"""Commands about tables: ``schema`` (templates and checks), ``describe``, and ``demo``, all on invented people."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from discreet.cli import options
from discreet.cli.options import (
    BAD_ROWS,
    DATA,
    GUARANTEE,
    LEDGER,
    MAX_ROWS_PER_GROUP,
    SCHEMA,
    Command,
    argument,
    command,
    count,
    fraction,
    input_file,
    to_write,
)
from discreet.cli.session import check_visible, fitting, release
from discreet.display.console import printable, say, table, working

FORMATS = ("toml", "json", "yaml")  # spelled out: help must not import NumPy

_SCHEMA_FILE = argument(
    "schema", type=input_file("schema file"), metavar="SCHEMA", help="schema, .toml, .json or .yaml"
)
_HEADER = """\
# A template from a sample that must be PUBLIC. Correct it from public knowledge, not from the private data:
# lower and upper should hold for everyone who could be in the table; categories should list all that are possible.
"""


@command(
    "template",
    "guess a schema from a public sample, for you to correct",
    "Guess a schema from a PUBLIC sample and write it to standard output. Never use the private "
    "table or a part of it: its extremes and rarest words would be published.",
    argument("data", type=input_file("file"), metavar="SAMPLE", help="public table, .csv or .parquet"),
    DATA[1],
    argument("--target", metavar="COLUMN", help="the column to predict"),
    argument("--group", metavar="COLUMN", help="the column of person ids"),
    argument(
        "--max-categories",
        type=count,
        default=50,
        metavar="N",
        help="hash columns of words with more different values as text (default: 50)",
    ),
    argument("--format", choices=FORMATS, default="toml", help="default: toml"),
)
def template(arguments: argparse.Namespace) -> None:
    """Print the template."""
    from discreet.tables.domains import Numeric
    from discreet.tables.drafting import looks_like_ids, misread
    from discreet.tables.drafting import template as guessed
    from discreet.tables.reading import column

    table = options.read(arguments)
    chosen = {name: getattr(arguments, name) for name in ("target", "group", "max_categories")}
    made = guessed(table, **chosen)
    text = made.to_text(arguments.format)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Schema files are always UTF-8.
        sys.stdout.reconfigure(encoding="utf-8")
    say((text if arguments.format == "json" else f"{_HEADER}\n{text}").rstrip("\n"))
    for name, domain in made.columns.items():
        if isinstance(domain, Numeric) and looks_like_ids(column(table, name)):
            advice = f"note: {name!r} may identify people: pass --group {name!r}, or leave the column out"
            print(printable(advice), file=sys.stderr)
        elif not isinstance(domain, Numeric) and (looks := misread(column(table, name))):
            print(printable(f"note: {name!r} holds {looks}"), file=sys.stderr)


@command(
    "show",
    "check a schema file and show the features it makes",
    None,
    _SCHEMA_FILE,
)
def show(arguments: argparse.Namespace) -> None:
    """Print what the schema declares."""
    from discreet.tables.schema import Schema

    say(Schema.from_file(arguments.schema))


@command(
    "check",
    "count the cells of a table that its schema does not describe; PRIVATE, for the holder of the table",
    "Compare a private table with its schema before a budget is spent: a misspelled category or a wrong bound raises "
    "no error in a fit. Nothing is charged and nothing is protected: the counts are exact, describe individuals, and "
    "MUST NOT BE PUBLISHED. Correct the schema from public knowledge, not from the counts.",
    _SCHEMA_FILE,
    *DATA,
)
def check(arguments: argparse.Namespace) -> None:
    """Print how many cells the schema does not describe."""
    from discreet.tables import drafting
    from discreet.tables.schema import Schema

    schema = Schema.from_file(arguments.schema)
    with working("reading the table"):
        found = drafting.check(schema, options.read(arguments, schema.needed))
    say("PRIVATE: exact counts of single people's cells. Do not publish them; nothing was charged.\n")
    table(
        f"{arguments.data}: {found.n_rows} rows",
        ("column", "kind", "missing", "unknown or out of bounds", "unreadable"),
        [(one.column, one.kind, one.missing, one.unexpected, one.meaningless) for one in found.columns],
    )
    say()
    for one in found.columns:
        if 2 * (one.unexpected + one.meaningless) > found.n_rows:
            say(
                f"{one.column!r}: most cells do not match the schema. Compare its spelling, units and bounds with the "
                "code book; numbers need a decimal point.",
                folded=True,
            )
    say(
        f"Rows that a fit with --bad-rows null would skip, because of unreadable cells or a missing label: "
        f"{found.n_left_out}. All others are used, with numbers clipped to their bounds and unknown words as zeros or "
        "in their bucket.",
        folded=True,
    )


schema = Command(
    "schema",
    "write and check schemas: the public facts about a table's columns",
    "A schema declares what is public about a table. Nothing in it may be taken from the private data.",
    actions=(template, show, check),
    examples=(
        "discreet schema template public_sample.csv --target readmitted > schema.toml",
        "discreet schema check schema.toml visits.csv",
    ),
)


@command(
    "describe",
    "private counts, means, histograms and quantiles of a table, in one release",
    "Describe every column of the schema with noise and intervals, all for one epsilon.",
    *DATA,
    SCHEMA,
    *GUARANTEE,
    *LEDGER,
    MAX_ROWS_PER_GROUP,
    argument(
        "--pair",
        nargs=2,
        action="append",
        default=[],
        metavar=("COLUMN", "COLUMN"),
        help="also release a two-way table of these columns; may be repeated",
    ),
    argument(
        "--bins", type=count, default=16, metavar="B", help="bins of a number's histogram (default: 16)"
    ),
    argument(
        "--population",
        action="store_true",
        help="intervals for the population that the rows were drawn from, not for this table",
    ),
    argument(
        "--confidence",
        type=fraction,
        default=0.95,
        metavar="C",
        help="confidence of each interval (default: 0.95)",
    ),
    BAD_ROWS,
    *to_write("also write all numbers and the statement (JSON)"),
    examples=(
        "discreet describe visits.csv --schema schema.toml --epsilon 0.5 --ledger budget.ledger",
        "discreet describe visits.csv --schema schema.toml --epsilon 0.5 --pair age sex --output table.json",
    ),
)
def describe(arguments: argparse.Namespace) -> None:
    """Read, check, charge, describe, write, state."""
    from discreet.description.describe import describe as described
    from discreet.tables.schema import Schema

    check_visible(arguments, "numbers")
    schema = Schema.from_file(arguments.schema)
    with options.output(arguments, size=1 << 20, reason=", and another description costs another charge"):
        ledger = arguments.outcome.ledger(arguments.ledger)
        table, groups = options.read_grouped(arguments, schema)
        with fitting():
            found = described(
                table,
                schema,
                pairs=[tuple(pair) for pair in arguments.pair],
                bins=arguments.bins,
                intervals="population" if arguments.population else "table",
                confidence=arguments.confidence,
                bad_rows=arguments.bad_rows,
                **options.budget_of(arguments, groups=groups, ledger=ledger),
            )
        release(found, arguments, "numbers")
    options.print_balance(arguments, ledger, found.privacy_)


@command(
    "demo",
    "train private models on a synthetic cohort and show what it costs",
    "Invent a hospital cohort, train with and without privacy, charge a ledger.",
    argument(
        "--people",
        type=count,
        default=50_000,
        metavar="N",
        help="number of people, at least 2000 (default: 50000)",
    ),
    argument(
        "--output",
        metavar="FOLDER",
        help="write the cohort, its schema and a ledger to this folder, to try other commands on",
    ),
    examples=("discreet demo", "discreet demo --people 5000 --output cohort"),
)
def demo(arguments: argparse.Namespace) -> None:
    """Run the demonstration in the given or a temporary folder."""
    import tempfile

    from discreet.cli import demonstration

    if arguments.output is not None:
        Path(arguments.output).mkdir(parents=True, exist_ok=True)
        demonstration.run(Path(arguments.output), arguments.people, keep=True)
        return
    with tempfile.TemporaryDirectory(prefix="discreet-demo-") as folder:
        demonstration.run(Path(folder), arguments.people)


@command(
    "warmup",
    "compile and keep the code that fits of large tables need",
    "Compile and keep the code that fits of large tables need, by fits to synthetic rows. It is kept beside the "
    "package, or in the folder that NUMBA_CACHE_DIR names, so that later processes start faster.",
)
def warmup(arguments: argparse.Namespace) -> None:
    """Fit synthetic rows, and print where the compiled code is."""
    from discreet.estimators.rehearsal import warm_up

    with working("compiling"):
        folder = warm_up()
    if folder is None:
        raise OSError("there is no writable folder for compiled code; set NUMBA_CACHE_DIR")
    say(f"Compiled code is kept in {folder}")
