"""``discreet fit``: a table in, a private model out."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from discreet.cli import options


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "fit",
        help="train a private model on a CSV or Parquet file",
        description="Train a private model. What can be wrong is checked before the ledger is charged, except whether "
        "the schema describes the data: a misspelled category or a wrong bound is silent and paid for. Holders of the "
        "data can see that with `discreet schema check SCHEMA DATA`.",
    )
    parser.add_argument("data", metavar="DATA", help="private table, .csv or .parquet")
    parser.add_argument(
        "--schema", required=True, metavar="FILE", help="public domains and target, .toml or .json"
    )
    parser.add_argument("--output", required=True, metavar="MODEL", help="model file to write (JSON)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing model file")
    options.add_guarantee(parser, delta_default="1 / rows^2")
    options.add_ledger(parser)
    options.add_model(parser)
    parser.add_argument(
        "--max-rows-per-group",
        type=options.count,
        metavar="K",
        help="rows of one person that are used at most, if the schema has a group column",
    )
    parser.add_argument(
        "--bad-rows",
        choices=("error", "null"),
        default="error",
        help="rows with meaningless cells or labels: an error, which tells you about the data you hold, "
        "or a record that counts for nothing, silently (default: error)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Read, check, charge, fit, save, state."""
    from discreet import card
    from discreet._console import say
    from discreet.schema import Schema

    options.check_max_rows(arguments)
    schema = Schema.from_file(arguments.schema)
    with options.output(
        arguments,
        arguments.data,
        arguments.schema,
        arguments.ledger,
        size=_largest(schema),
        reason=", and a private model cannot be had twice for one price",
    ):
        ledger = arguments.outcome.ledger(arguments.ledger)
        model = _fitted(arguments, schema, ledger)
        try:
            card.save(model, arguments.output, schema=schema)
        except OSError as error:
            raise OSError(f"the model was fitted but not saved: {error.strerror or error}") from error
    arguments.outcome.wrote(f"the model is in {arguments.output}")
    say(model.privacy_)
    say(f"\nModel written to {arguments.output}")
    options.tell_balance(arguments, ledger)


def _largest(schema: Any) -> int:
    """More bytes than a model file will have."""
    n_features: int = schema.n_features
    return 65_536 + 64 * (n_features + 1) * len(options.classes(schema)) + 256 * n_features


def _fitted(arguments: argparse.Namespace, schema: Any, ledger: Any) -> Any:
    from discreet._console import working
    from discreet.tables import read_table

    model = options.estimator(
        arguments,
        schema.feature_bound(intercept=not arguments.no_intercept),
        classes=options.classes(schema),
        ledger=ledger,
        bad_rows=arguments.bad_rows,
        n_samples=arguments.max_rows,
        max_rows_per_group=arguments.max_rows_per_group,
    )
    if _too_large(arguments.data, schema):
        with _mapped(arguments, schema) as rows, working("fitting"):
            return model.fit(rows)
    with working("reading the table"):
        table = read_table(arguments.data, schema.needed, bad_rows=arguments.bad_rows)
        rows, labels = schema.encode(table, bad_rows=arguments.bad_rows)
        groups = _groups(schema, table, arguments.max_rows_per_group)
    with working("fitting"):
        return model.fit(rows, labels, groups=groups)


def _too_large(path: str, schema: Any) -> bool:
    """Whether the encoded table would take more than half of the memory that is free; only Parquet files can tell."""
    memory = Path("/proc/meminfo")
    if not path.endswith(".parquet") or not Path(path).exists() or not memory.exists():
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    free = next(line for line in memory.read_text().splitlines() if line.startswith("MemAvailable"))
    # A broken file fails when it is read.
    with contextlib.suppress(pa.ArrowInvalid), pq.ParquetFile(path) as file:
        return bool(8 * file.metadata.num_rows * schema.n_features > 512 * int(free.split()[1]))
    return False


def _mapped(arguments: argparse.Namespace, schema: Any) -> Any:
    """The encoded rows in a mapped file, with a bar while it is written."""
    from discreet._console import progress
    from discreet.records import arrow

    if schema.group is not None:
        raise ValueError(
            "a table with groups must fit in memory; take it apart by group, or use a larger machine"
        )
    with progress("converting the table, which does not fit in memory", 100) as step:
        shown = [0]

        def tell(done: int, total: int) -> None:
            while shown[0] < 100 * done // max(1, total):
                shown[0] += 1
                step(f"converting the table: {done} of {total} rows")

        return arrow.encoded(arguments.data, schema, bad_rows=arguments.bad_rows, progress=tell)


def _groups(schema: Any, table: Any, max_rows: int | None) -> Any:
    """Whose row each row is, if the schema says that a person can have several."""
    if schema.group is not None and max_rows is None:
        raise ValueError(
            f"the schema's group column {schema.group!r} says that a person can have several rows; say how many of "
            "them may be used with --max-rows-per-group K"
        )
    if schema.group is None and max_rows is not None:
        raise ValueError('--max-rows-per-group needs a schema with a group column: group = "COLUMN"')
    return None if schema.group is None else schema.groups(table)
