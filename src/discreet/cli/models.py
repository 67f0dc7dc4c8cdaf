"""Commands that make and apply models: ``plan``, ``plan transfer``, ``fit``, ``predict``."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from discreet.cli import options
from discreet.cli.options import (
    GUARANTEE,
    LEDGER,
    MAX_ROWS_PER_GROUP,
    MODEL,
    argument,
    command,
    one_of,
    section,
)

# Spelled out: help must not import NumPy.
AGGREGATORS = ("auto", "shares", "sparse-vector", "plurality", "confident")


@command(
    "plan",
    "what a fit would cost and add, before any data is read",
    "Print the noise, the regularization and the cost of a fit. Reads no data.",
    argument("--rows", type=options.count, required=True, metavar="N", help="public number of rows"),
    one_of(
        argument("--columns", type=options.columns, metavar="P", help="number of columns after encoding"),
        argument("--schema", metavar="FILE", help="TOML or JSON file with the public domains"),
    ),
    argument("--classes", type=options.count, metavar="K", help="default: the schema's, otherwise 2"),
    argument("--sparse", action="store_true", help="the rows will be a sparse matrix"),
    *GUARANTEE,
    *MODEL,
    section(
        "simulation on invented data of the same shape",
        argument(
            "--simulate", action="store_true", help="also fit invented data, to see accuracy against epsilon"
        ),
        argument(
            "--epsilons",
            type=options.epsilon,
            nargs="+",
            metavar="E",
            help="at which to fit (default: a tenth, a third, once and three times --epsilon)",
        ),
        argument(
            "--attainable",
            type=options.fraction,
            default=0.85,
            metavar="A",
            help="accuracy of the best possible model, your guess (default: 0.85)",
        ),
        argument(
            "--repeats", type=options.count, default=3, metavar="N", help="invented data sets (default: 3)"
        ),
        argument("--seed", type=int, metavar="S", help="of the invented data"),
    ),
)
def plan(arguments: argparse.Namespace) -> None:
    """Plan and print."""
    from discreet.display.console import say

    if arguments.simulate and arguments.sparse:
        raise ValueError("--simulate invents dense rows; leave out --sparse, or plan without --simulate")
    columns, classes, feature_bound = arguments.columns, arguments.classes, 1.0
    if arguments.schema is not None:
        from discreet.tables.schema import Schema

        schema = Schema.from_file(arguments.schema)
        columns = schema.n_features
        feature_bound = schema.feature_bound(intercept=not arguments.no_intercept)
        if classes is None and schema.target is not None:
            classes = len(_classes(schema))
    declared = arguments.rows if arguments.neighboring == "add-remove-one" else None
    estimator = _estimator(arguments, feature_bound, n_samples=declared)
    classes = 2 if classes is None else classes
    planned = estimator.plan(arguments.rows, columns, classes, sparse=arguments.sparse)
    say(planned)
    promise = planned.guarantee
    say(f"A ledger would be charged at most ({promise.epsilon:g}, {promise.delta:.3g}). No data was read.")
    from discreet.estimators.linear import warn_if_noise

    warn_if_noise(planned.problem, promise)
    if arguments.simulate:
        _simulate(arguments, estimator, columns, classes)


def _simulate(arguments: argparse.Namespace, estimator: Any, columns: int, classes: int) -> None:
    """Print accuracy against epsilon on invented data."""
    from discreet.display.console import say, working
    from discreet.estimators.rehearsal import simulate

    epsilons = arguments.epsilons or [share * arguments.epsilon for share in (0.1, 1 / 3, 1.0, 3.0)]
    with working(f"fitting {len(epsilons) * arguments.repeats} models to invented data"):
        rows = simulate(
            estimator,
            arguments.rows,
            columns,
            classes,
            epsilons=epsilons,
            attainable=arguments.attainable,
            repeats=arguments.repeats,
            random_state=arguments.seed,
        )
    say(
        f"\nAccuracy on invented data of this shape, where {arguments.attainable:.4g} is the best possible and "
        f"{1 / classes:.4g} a guess:"
    )
    for row in rows:
        say(f"  {row}")


@command(
    "plan-transfer",
    "the same for teachers and a student (also: plan transfer)",
    "Print how many teachers, which aggregator and how much agreement a private transfer needs. Reads no data.",
    argument(
        "--rows",
        type=options.count,
        required=True,
        metavar="N",
        help="public number of records, with --by-user of users",
    ),
    argument("--queries", type=options.count, required=True, metavar="Q", help="public rows to label"),
    argument("--classes", type=options.count, default=2, metavar="K", help="default: 2"),
    argument("--teachers", type=options.count, metavar="B", help="default: by public rule"),
    argument("--unstable", type=options.count, metavar="T", help="refusals before halting"),
    argument(
        "--expected-unstable",
        type=options.fraction,
        metavar="S",
        help="guessed share of questions on which teachers disagree (default: nothing is known)",
    ),
    argument("--aggregator", choices=AGGREGATORS, default="auto", help="default: auto"),
    argument("--by-user", action="store_true", help="protect users with several records"),
    *GUARANTEE,
    prog="discreet plan transfer",
)
def plan_transfer(arguments: argparse.Namespace) -> None:
    """Plan and print."""
    from discreet.display.console import say
    from discreet.privacy.guarantee import Guarantee, Neighboring
    from discreet.transfer import plan as planner
    from discreet.transfer.base import changed_teachers

    relation = Neighboring(arguments.neighboring)
    delta = arguments.delta if arguments.delta is not None else 1.0 / arguments.rows**2
    plan = planner.plan_transfer(
        Guarantee(arguments.epsilon, delta, relation, "user" if arguments.by_user else "record"),
        arguments.rows,
        arguments.classes,
        arguments.queries,
        n_teachers=arguments.teachers or "auto",
        aggregator=arguments.aggregator,
        max_unstable=arguments.unstable or "auto",
        expected_unstable=arguments.expected_unstable,
        changed=changed_teachers(relation, by_group=arguments.by_user, label_private=False),
    )
    say(plan)
    say(f"A ledger would be charged at most ({plan.guarantee.epsilon:g}, {delta:.3g}). No data was read.")


@command(
    "fit",
    "train a private model on a CSV or Parquet file",
    "Train a private model. Everything is checked before the ledger is charged, except whether the "
    "schema describes the data: a misspelled category or wrong bound raises no error, and the fit is charged "
    "anyway. Whoever holds the data can check with `discreet schema check SCHEMA DATA`.",
    argument("data", metavar="DATA", help="private table, .csv or .parquet"),
    argument("--schema", required=True, metavar="FILE", help="public domains and target, .toml or .json"),
    argument("--output", required=True, metavar="MODEL", help="model file to write (JSON)"),
    argument("--overwrite", action="store_true", help="replace an existing model file"),
    *GUARANTEE,
    *LEDGER,
    *MODEL,
    MAX_ROWS_PER_GROUP,
    argument(
        "--bad-rows",
        choices=("error", "null"),
        default="error",
        help="rows with invalid cells or labels: raise an error, which reveals something about the data, or replace "
        "them silently by records that contribute nothing (default: error)",
    ),
)
def fit(arguments: argparse.Namespace) -> None:
    """Read, check, charge, fit, save, state."""
    from discreet import card
    from discreet.display.console import say
    from discreet.tables.schema import Schema

    options.check_max_rows(arguments)
    schema = Schema.from_file(arguments.schema)
    classes = _classes(schema)
    with options.output(
        arguments,
        arguments.data,
        arguments.schema,
        arguments.ledger,
        size=65_536
        + 64 * (schema.n_features + 1) * len(classes)
        + 256 * schema.n_features,  # more than it will have
        reason=", and a private model cannot be had twice for one price",
    ):
        ledger = arguments.outcome.ledger(arguments.ledger)
        model = _fitted(arguments, schema, classes, ledger)
        try:
            card.save(model, arguments.output, schema=schema)
        except OSError as error:
            raise OSError(f"the model was fitted but not saved: {error.strerror or error}") from error
    arguments.outcome.wrote(f"the model is in {arguments.output}")
    say(model.privacy_)
    say(f"\nModel written to {arguments.output}")
    options.tell_balance(arguments, ledger)


def _fitted(arguments: argparse.Namespace, schema: Any, classes: list[Any], ledger: Any) -> Any:
    from discreet.display.console import working
    from discreet.tables.reading import read_table

    model = _estimator(
        arguments,
        schema.feature_bound(intercept=not arguments.no_intercept),
        classes=classes,
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
        groups = options.people(schema, table, arguments.max_rows_per_group)
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
    from discreet.display.console import progress
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


@command(
    "predict",
    "apply a model to a CSV or Parquet file",
    "Apply a model to a table with the columns of its schema; one line per row, in order.",
    argument("model", metavar="MODEL", help="model file written by `discreet fit`"),
    argument("data", metavar="DATA", help="table, .csv or .parquet"),
    argument("--output", required=True, metavar="FILE", help="predictions to write (CSV)"),
    argument("--overwrite", action="store_true", help="replace an existing file"),
)
def predict(arguments: argparse.Namespace) -> None:
    """Load, read, predict, write."""
    from discreet.display.console import say, working
    from discreet.tables.reading import read_table, write_csv

    model, schema = options.model_and_schema(arguments.model, "use discreet.card.load and predict in Python")
    with options.output(arguments, arguments.model, arguments.data), working("predicting"):
        rows = schema.transform(read_table(arguments.data, list(schema.columns)))
        columns: dict[str, Any] = {"prediction": model.predict(rows)}
        if hasattr(model, "predict_proba"):
            chances = model.predict_proba(rows)
            columns |= {f"probability of {label}": chances[:, i] for i, label in enumerate(model.classes_)}
        write_csv(arguments.output, columns)
    say(f"{len(rows)} predictions written to {arguments.output}")


def _estimator(arguments: argparse.Namespace, feature_bound: float, **parameters: Any) -> Any:
    """The unfitted estimator that the shared options describe."""
    from discreet.estimators import classifiers

    kind = getattr(classifiers, options.MODELS[arguments.model])
    return kind(
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        neighboring=arguments.neighboring,
        feature_bound=feature_bound if arguments.feature_bound is None else arguments.feature_bound,
        l2=arguments.l2,
        fit_intercept=not arguments.no_intercept,
        solver=arguments.solver,
        **parameters,
    )


def _classes(schema: Any) -> list[Any]:
    """The classes of a schema's target; the estimators of the command line have no other kind of target."""
    target = schema.target
    if target is not None and target.bounds is not None:
        raise ValueError(
            f"the target {target.column!r} is a number, and the command line fits classifiers only; fit it in Python, "
            "by discreet.PrivateRidge, PrivateHuberRegressor, PrivateQuantileRegressor or PrivatePoissonRegressor"
        )
    found: list[Any] = schema.classes.tolist()
    return found
