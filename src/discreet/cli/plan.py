"""``discreet plan``: what a fit would cost and add, from public facts only."""

from __future__ import annotations

import argparse
from typing import Any

from discreet.cli import options


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "plan",
        help="what a fit would cost and add, before any data is read",
        description="Print the noise, the regularization and the cost of a fit. Reads no data.",
    )
    parser.add_argument(
        "--rows", type=options.count, required=True, metavar="N", help="public number of rows"
    )
    shape = parser.add_mutually_exclusive_group(required=True)
    shape.add_argument("--columns", type=options.count, metavar="P", help="number of columns after encoding")
    shape.add_argument("--schema", metavar="FILE", help="TOML or JSON file with the public domains")
    parser.add_argument(
        "--classes", type=options.count, metavar="K", help="default: the schema's, otherwise 2"
    )
    options.add_guarantee(parser, delta_default="1 / rows^2")
    options.add_model(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Plan and print."""
    from discreet._console import say

    columns, classes, feature_bound = arguments.columns, arguments.classes, 1.0
    if arguments.schema is not None:
        from discreet.schema import Schema

        schema = Schema.from_file(arguments.schema)
        columns = schema.n_features
        feature_bound = schema.feature_bound(intercept=not arguments.no_intercept)
        if classes is None and schema.target is not None:
            classes = len(schema.target.classes)
    declared = arguments.rows if arguments.neighboring == "add-remove-one" else None
    estimator = options.estimator(arguments, feature_bound, n_samples=declared)
    planned = estimator.plan(arguments.rows, columns, 2 if classes is None else classes)
    say(planned)
    promise = planned.guarantee
    say(f"A ledger would be charged at most ({promise.epsilon:g}, {promise.delta:.3g}). No data was read.")
