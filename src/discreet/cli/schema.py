"""``discreet schema``: a template from a public sample, and what a schema makes of a table."""

from __future__ import annotations

import argparse
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


def run_template(arguments: argparse.Namespace) -> None:
    """Print the template."""
    from discreet import schema_files
    from discreet.tables import read_table
    from discreet.template import template

    made = template(
        read_table(arguments.sample),
        target=arguments.target,
        group=arguments.group,
        max_categories=arguments.max_categories,
    )
    text = schema_files.text(made.to_dict(), arguments.format)
    print(text if arguments.format == "json" else f"{_HEADER}\n{text}", end="")


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
