"""``discreet predict``: a model and a table in, predictions out."""

from __future__ import annotations

import argparse
from typing import Any

from discreet.cli import options


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "predict",
        help="apply a model to a CSV or Parquet file",
        description="Apply a model to a table with the columns of its schema; one line per row, in order.",
    )
    parser.add_argument("model", metavar="MODEL", help="model file written by `discreet fit`")
    parser.add_argument("data", metavar="DATA", help="table, .csv or .parquet")
    parser.add_argument("--output", required=True, metavar="FILE", help="predictions to write (CSV)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Load, read, predict, write."""
    from discreet._console import say, working
    from discreet.tables import read_table, write_csv

    model, schema = options.model_and_schema(arguments.model, "use discreet.card.load and predict in Python")
    with options.output(arguments, arguments.model, arguments.data), working("predicting"):
        rows = schema.transform(read_table(arguments.data, list(schema.columns)))
        columns: dict[str, Any] = {"prediction": model.predict(rows)}
        if hasattr(model, "predict_proba"):
            chances = model.predict_proba(rows)
            columns |= {f"probability of {label}": chances[:, i] for i, label in enumerate(model.classes_)}
        write_csv(arguments.output, columns)
    say(f"{len(rows)} predictions written to {arguments.output}")
