"""``discreet schema``: a template from a public sample, and what a schema makes of a table."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

from discreet.cli import options

FORMATS = ("toml", "json", "yaml")  # spelled out: help must not import NumPy

_HEADER = """\
# A template, read off a sample that must be PUBLIC. Correct it by what is known without the private data:
# lower and upper should hold for anybody who could be in the table, categories should list all there can be.
"""


def add_parser(commands: Any) -> None:
    """Declare the command and its actions."""
    parser = commands.add_parser(
        "schema",
        help="write and check schemas: the public facts about a table's columns",
        description="A schema says what is public about a table. Nothing in it may be read off the private data.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    template = actions.add_parser(
        "template",
        help="guess a schema from a public sample, for you to correct",
        description="Guess a schema from a PUBLIC sample and write it to standard output. Never use the private "
        "table or a part of it: its extremes and rarest words would be published.",
    )
    template.add_argument("sample", metavar="SAMPLE", help="public table, .csv or .parquet")
    template.add_argument("--target", metavar="COLUMN", help="the column to predict")
    template.add_argument("--group", metavar="COLUMN", help="the column that says whose row it is")
    template.add_argument(
        "--max-categories",
        type=options.count,
        default=50,
        metavar="N",
        help="columns of words with more different values are hashed as text (default: 50)",
    )
    template.add_argument("--format", choices=FORMATS, default="toml", help="default: toml")
    template.set_defaults(run=run_template)
    show = actions.add_parser("show", help="check a schema file and show the features it gives")
    show.add_argument("schema", metavar="FILE", help="schema, .toml, .json or .yaml")
    show.set_defaults(run=run_show)
    check = actions.add_parser(
        "check",
        help="count the cells of a table that its schema does not describe; PRIVATE, for the holder of the table",
        description="Compare a private table with its schema before a budget is spent: a misspelled category or a "
        "wrong bound raises no error in a fit. Nothing is charged and nothing is protected: the counts are exact, "
        "describe single people, and MUST NOT BE PUBLISHED. Correct the schema from what is public, not from the "
        "counts.",
    )
    check.add_argument("schema", metavar="SCHEMA", help="schema, .toml, .json or .yaml")
    check.add_argument("data", metavar="DATA", help="private table, .csv or .parquet")
    check.set_defaults(run=run_check)


def run_template(arguments: argparse.Namespace) -> None:
    """Print the template."""
    from discreet import schema_files
    from discreet._console import say
    from discreet.tables import read_table
    from discreet.template import template

    made = template(
        read_table(arguments.sample),
        target=arguments.target,
        group=arguments.group,
        max_categories=arguments.max_categories,
    )
    text = schema_files.text(made.to_dict(), arguments.format)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What every schema file is, whatever the terminal's language.
        sys.stdout.reconfigure(encoding="utf-8")
    say((text if arguments.format == "json" else f"{_HEADER}\n{text}").rstrip("\n"))


def run_show(arguments: argparse.Namespace) -> None:
    """Print what the schema declares."""
    from discreet._console import say
    from discreet.schema import Schema

    schema = Schema.from_file(arguments.schema)
    target = schema.target
    facts = {
        "columns": str(len(schema.columns)),
        "features": str(schema.n_features),
        "longest row": f"{schema.row_norm_bound:.6g}",
        "feature_bound": f"{schema.feature_bound():.6g} (intercept included)",
        "target": "none" if target is None else f"{target.column}: {target.bounds or list(target.classes)}",
        "group": schema.group or "none: each row is one person",
    }
    for name, value in facts.items():
        say(f"{name + ':':<16}{value}")
    for name, domain in schema.columns.items():
        features = domain.feature_names(name)
        shown = ", ".join(features[:6]) + (f" and {len(features) - 6} more" if len(features) > 6 else "")
        say(f"  {name} ({domain.kind}): {shown}")


def run_check(arguments: argparse.Namespace) -> None:
    """Print how many cells the schema does not describe."""
    from discreet._console import paragraph, say, table, working
    from discreet.schema import Schema
    from discreet.schema_check import check
    from discreet.tables import read_table

    schema = Schema.from_file(arguments.schema)
    with working("reading the table"):
        found = check(schema, read_table(arguments.data, schema.needed))
    say("PRIVATE: exact counts of single people's cells. Do not publish them; nothing was charged.\n")
    table(
        f"{arguments.data}: {found.n_rows} rows",
        ("column", "kind", "missing", "unknown or out of bounds", "meaningless"),
        [(one.column, one.kind, one.missing, one.unexpected, one.meaningless) for one in found.columns],
    )
    say()
    for one in found.columns:
        if 2 * (one.unexpected + one.meaningless) > found.n_rows:
            paragraph(
                f"{one.column!r}: most cells are not what the schema declares. Compare its spelling, units and bounds "
                "with the code book."
            )
    paragraph(
        f"Rows that a fit with --bad-rows null would leave out, for meaningless cells or want of a label: "
        f"{found.n_left_out}. All others count, with numbers clipped to their bounds and unknown words as zeros or in "
        "their bucket."
    )
