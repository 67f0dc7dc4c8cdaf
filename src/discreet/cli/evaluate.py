"""``discreet evaluate``: a model and a private table in, metrics with noise and intervals out."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from discreet.cli import options

_LARGEST_REPORT = 1 << 20  # bytes that must be free before the ledger is charged, besides those of the bins


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
    options.add_ledger(parser)
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
    parser.add_argument("--output", metavar="FILE", help="also write metrics and statement (JSON)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file of metrics")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Load, read, check, charge, evaluate, write, state."""
    options.check_max_rows(arguments)
    if sys.stdout is None and arguments.output is None:
        raise ValueError(
            "standard output is closed, so the metrics would be paid for and lost; open it, or name a file "
            "with --output"
        )
    model, schema = options.model_and_schema(arguments.model, "use discreet.evaluate in Python")
    with options.output(
        arguments,
        arguments.model,
        arguments.data,
        arguments.ledger,
        size=_LARGEST_REPORT + 256 * arguments.bins,
        reason=", and metrics cannot be had twice for one price",
    ):
        ledger = arguments.outcome.ledger(arguments.ledger)
        _release(_evaluated(arguments, model, schema, ledger), arguments)
    options.tell_balance(arguments, ledger)


def _evaluated(arguments: argparse.Namespace, model: Any, schema: Any, ledger: Any) -> Any:
    from discreet._console import working
    from discreet.evaluation.evaluate import evaluate
    from discreet.tables import read_table

    with working("evaluating"):
        table = read_table(arguments.data, schema.needed)
        rows, labels = schema.encode(table)
        groups, values = _groups(schema, table, arguments.group)
        return evaluate(
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


def _release(result: Any, arguments: argparse.Namespace) -> None:
    """Write and print metrics that are paid for: where one way fails, another must be left."""
    import json

    from discreet._console import say
    from discreet._files import write_atomically

    failure = None
    if arguments.output is not None:
        try:
            write_atomically(arguments.output, json.dumps(result.to_dict(), indent=2, default=str).encode())
            arguments.outcome.wrote(f"the metrics are in {arguments.output}")
        except OSError as error:
            failure = error
    try:
        say(result)
    except OSError:
        if arguments.output is None or failure is not None:
            print(result, file=sys.stderr)
        raise
    if failure is not None:
        raise failure
    if arguments.output is not None:
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
