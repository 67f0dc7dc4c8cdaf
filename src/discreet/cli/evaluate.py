"""``discreet evaluate``: a model and a private table in, metrics with noise and intervals out."""

from __future__ import annotations

import argparse
from typing import Any

from discreet.cli import options
from discreet.cli.ledger import opened

_LARGEST_REPORT = 1 << 20  # bytes that must be free before the ledger is charged


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "evaluate",
        help="private accuracy, AUC, calibration and confusion of a model on a held-out table",
        description="Evaluate a model on private rows it was not trained on. What can be wrong is checked before the "
        "ledger is charged; all metrics together cost one epsilon.",
    )
    parser.add_argument("model", metavar="MODEL", help="model file written by `discreet fit`")
    parser.add_argument("data", metavar="DATA", help="private table, .csv or .parquet")
    options.add_guarantee(parser, delta_default="1 / rows^2")
    parser.add_argument("--ledger", metavar="FILE", help="ledger to charge, see `discreet ledger create`")
    parser.add_argument(
        "--group",
        metavar="COLUMN",
        help="categorical column of the schema: metrics for each category",
    )
    parser.add_argument(
        "--bins", type=options.count, default=20, metavar="B", help="bins of probabilities (default: 20)"
    )
    parser.add_argument(
        "--confidence",
        type=options.fraction,
        default=0.95,
        metavar="C",
        help="of every interval (default: 0.95)",
    )
    parser.add_argument(
        "--max-rows", type=options.count, metavar="N", help="public bound on the rows, under add-remove-one"
    )
    parser.add_argument("--output", metavar="FILE", help="also write metrics and statement (JSON)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file of metrics")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Load, read, check, charge, evaluate, state."""
    import json

    from discreet._console import note, say, working
    from discreet._files import write_atomically
    from discreet.evaluation.evaluate import evaluate
    from discreet.tables import read_table

    options.check_max_rows(arguments)
    if arguments.output is not None:
        options.keep_inputs(arguments.output, arguments.model, arguments.data, arguments.ledger)
        options.check_output(
            arguments.output,
            overwrite=arguments.overwrite,
            reason="metrics cannot be had twice for one price",
            size=_LARGEST_REPORT,
        )
    model, schema = options.model_and_schema(arguments.model, "use discreet.evaluate in Python")
    ledger = None if arguments.ledger is None else opened(arguments.ledger)
    with working("evaluating"):
        table = read_table(arguments.data, schema.needed)
        rows, labels = schema.encode(table)
        groups, values = _groups(schema, table, arguments.group)
        result = evaluate(
            model,
            rows,
            labels,
            epsilon=arguments.epsilon,
            delta=arguments.delta,
            neighboring=arguments.neighboring,
            confidence=arguments.confidence,
            bins=arguments.bins,
            groups=groups,
            group_values=values,
            n_samples=arguments.max_rows,
            ledger=ledger,
        )
    say(result)  # first of all: what was paid for must not be lost with a file
    if ledger is None:
        note("no --ledger was given: nothing keeps count of what this data has been used for")
    else:
        say(f"Ledger: {ledger.spent()}")
    if arguments.output is not None:
        write_atomically(arguments.output, json.dumps(result.to_dict(), indent=2, default=str).encode())
        say(f"Written to {arguments.output}")


def _groups(schema: Any, table: Any, name: str | None) -> tuple[Any, list[Any] | None]:
    """The category of every row and the public list of categories; rows of other categories are in no group."""
    if name is None:
        return None, None
    import numpy as np

    from discreet.domains import category_codes
    from discreet.tables import column

    categories = getattr(schema.columns.get(name), "categories", None)
    if categories is None:
        known = [other for other, domain in schema.columns.items() if hasattr(domain, "categories")]
        raise ValueError(
            f"--group needs a categorical column of the model's schema, got {name!r}; there are {known}"
        )
    labels = np.array([*categories, None], dtype=object)
    return labels[category_codes(column(table, name), tuple(categories))], list(categories)
