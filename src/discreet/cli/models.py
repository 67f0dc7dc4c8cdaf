"""Commands that make and apply models: ``fit``, ``search``, ``label``, ``plan transfer``, ``predict``."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from discreet.cli import catalog, options
from discreet.cli.options import (
    BAD_ROWS,
    DATA,
    GUARANTEE,
    LEDGER,
    MAX_ROWS_PER_GROUP,
    MODEL_FILE,
    SCHEMA,
    argument,
    command,
    count,
    fraction,
    schema_file,
    to_write,
)
from discreet.cli.session import fitting
from discreet.display.console import progress, say, working

_FIT_SCHEMA = schema_file(
    "public domains and target, .toml, .json or .yaml; for all models but the recommender"
)


@command(
    "fit",
    "train a private model on a CSV or Parquet file",
    "Train a private model. Everything is checked before the ledger is charged, except whether the "
    "schema describes the data: a misspelled category or wrong bound raises no error, and the fit is charged "
    "anyway. Whoever holds the data can check with `discreet schema check SCHEMA DATA`.",
    *DATA,
    _FIT_SCHEMA,
    *to_write("model file to write (JSON)", required=True, metavar="MODEL"),
    *GUARANTEE,
    *LEDGER,
    catalog.MODEL,
    MAX_ROWS_PER_GROUP,
    BAD_ROWS,
    examples=(
        "discreet fit visits.csv --schema schema.toml --epsilon 1 --ledger budget.ledger --output model.json",
        "discreet fit visits.csv --schema cost.toml --model huber --epsilon 1 --output cost.json",
        "discreet fit visits.csv --schema people.toml --max-rows-per-group 3 --epsilon 1 --output model.json",
        "discreet fit visits.csv --schema schema.toml --model transfer --public survey.csv --epsilon 1 --output m.json",
        "discreet fit ratings.parquet --model recommender --catalog items.txt --epsilon 1 --output films.json",
    ),
)
def fit(arguments: argparse.Namespace) -> None:
    """Read, check, charge, fit, save, state."""
    schema, size = _schema(arguments)
    with options.output(arguments, size=size, reason=_ONCE):
        ledger = arguments.outcome.ledger(arguments.ledger)
        estimator = catalog.estimator(
            arguments,
            schema,
            ledger=ledger,
            bad_rows=arguments.bad_rows,
            max_rows_per_group=arguments.max_rows_per_group,
            **{_SIZES.get(arguments.model or "", "n_samples"): arguments.max_rows},
        )
        _save(arguments, _fitted(arguments, schema, estimator), schema, ledger)


_SIZES = {"recommender": "n_users"}  # the parameter that bounds the number of units, if not n_samples
_ONCE = ", and another private model costs another charge"
_ROOM = 65_536  # bytes, more than a model file has without its coefficients


def _schema(arguments: argparse.Namespace) -> tuple[Any, int]:
    """Read the schema (None for a recommender), and return an upper bound on the size of the model file."""
    if (arguments.model == "recommender") == (arguments.schema is not None):
        raise ValueError(
            "a recommender reads the columns user, item and rating without a schema; leave out --schema"
            if arguments.schema is not None
            else "--schema is required: the public domains of the table's columns; `discreet schema template` "
            "writes a first one from a public sample"
        )
    if arguments.schema is None:
        return None, _ROOM
    from discreet.tables.schema import Schema

    schema = Schema.from_file(arguments.schema)
    outputs = 1 if schema.target is None or schema.target.bounds else len(schema.classes)
    return schema, _ROOM + 64 * (schema.n_features + 1) * outputs + 256 * schema.n_features


def _save(arguments: argparse.Namespace, model: Any, schema: Any, ledger: Any) -> None:
    """Write the model file, then print the statement and what is left of the ledger."""
    from discreet import card

    try:
        card.save(model, arguments.output, schema=schema, overwrite=True)  # the name is reserved
    except OSError as error:
        raise OSError(f"the model was fitted but not saved: {error.strerror or error}") from error
    arguments.outcome.written = f"the model is in {arguments.output}"
    say(model.privacy_)
    say(f"\nModel written to {arguments.output}")
    options.print_balance(arguments, ledger, model.privacy_)


def _fitted(arguments: argparse.Namespace, schema: Any, estimator: Any) -> Any:
    """Read the data in the form that the model takes, and fit."""
    reads = catalog.MODELS[catalog.name_of(arguments, schema)].reads
    if reads == "teachers":
        return _taught(arguments, schema, estimator)[0]
    if reads == "ratings":
        ratings: Any = arguments.data if arguments.data.endswith(".parquet") else options.read(arguments)
        with fitting():
            return estimator.fit(ratings)
    if reads in ("rows", "entries") and Path(arguments.data).is_dir():
        with fitting():
            return estimator.fit(arguments.data, schema=schema)
    if reads in ("rows", "entries") and _too_large(arguments.data, schema):
        with _mapped(arguments, schema) as rows, fitting():
            return estimator.fit(rows)
    unused = getattr(schema.target, "column", None) if reads == "points" else None
    needed = [name for name in schema.needed if name != unused]
    with fitting("reading the table"):
        table, groups = options.read_grouped(arguments, schema, needed)
        if reads == "table":
            return estimator.fit(table, groups=groups)
        if reads == "points":
            return estimator.fit(schema.transform(table, bad_rows=arguments.bad_rows), groups=groups)
        return estimator.fit(*schema.encode(table, bad_rows=arguments.bad_rows), groups=groups)


def _taught(arguments: argparse.Namespace, schema: Any, estimator: Any) -> tuple[Any, Any]:
    """Train teachers on the private rows, which label the public rows; return the model and the public table."""
    from discreet.tables.domains import SchemaError
    from discreet.tables.reading import read_table

    if arguments.X_public is None:
        raise ValueError(
            "--public is required: the public rows that teachers label and the student learns from"
        )
    with fitting("reading the tables"):
        table = options.read(arguments, schema.needed)
        groups = None if schema.group is None else schema.groups(table)
        rows, labels = schema.encode(table)
        public = read_table(arguments.X_public, list(schema.columns), separator=arguments.separator)
        try:
            queries = schema.transform(public)
        except SchemaError as error:
            raise SchemaError(f"{arguments.X_public}: {error.message}", *error.hint) from None
        return estimator.fit(rows, labels, queries, groups=groups), public


def _too_large(path: str, schema: Any) -> bool:
    """Whether the encoded table would take more than half of the free memory; known for Parquet files only."""
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
    """Encode the rows into a mapped file, with a progress bar."""
    from discreet.records import arrow

    if schema.group is not None:
        raise ValueError(
            "a table with groups must fit in memory; split it by person, or use a larger machine"
        )
    with progress("converting the table, which does not fit in memory", 100) as step:
        shown = [0]

        def report(done: int, total: int) -> None:
            while shown[0] < 100 * done // max(1, total):
                shown[0] += 1
                step(f"converting the table: {done} of {total} rows")

        return arrow.encoded(arguments.data, schema, bad_rows=arguments.bad_rows, progress=report)


def _varied(text: str) -> tuple[str, list[Any]]:
    """Parse an option and its values."""
    name, separator, values = text.partition("=")
    parameter = name.strip().lstrip("-").replace("-", "_")
    settings = catalog.OPTIONS.get(parameter, {"action": ""})
    if not separator or "nargs" in settings or "action" in settings:
        advice = "" if parameter in catalog.OPTIONS else options.advice(f"--{parameter}", catalog.OPTIONS)
        raise argparse.ArgumentTypeError(
            f"must be OPTION=VALUE,VALUE,... of the model's options, such as l2=1e-4,1e-3, got {text!r}{advice}"
        )
    read = settings.get("type", str)
    return parameter, [read(value.strip()) for value in values.split(",")]


@command(
    "search",
    "train several candidates and keep the best; one epsilon covers everything",
    "Search among candidates of one linear model, such as bounds or penalties; the stated epsilon covers training and "
    "choosing. The model file holds the chosen model. The running time reveals the number of tries: keep it secret.",
    *DATA,
    _FIT_SCHEMA,
    argument(
        "--vary",
        type=_varied,
        action="append",
        required=True,
        metavar="OPTION=A,B,...",
        help="values to try for an option of the model, such as l2=1e-4,1e-3; may be repeated",
    ),
    argument(
        "--search-by",
        choices=("tries", "split", "split-parallel"),
        default="tries",
        help="method of the search (default: tries)",
    ),
    argument(
        "--holdout",
        type=fraction,
        default=0.2,
        metavar="S",
        help="fraction of the rows on which candidates are compared (default: 0.2)",
    ),
    *to_write("model file to write (JSON)", required=True, metavar="MODEL"),
    *GUARANTEE,
    *LEDGER,
    catalog.MODEL,
    MAX_ROWS_PER_GROUP,
    BAD_ROWS,
    examples=(
        "discreet search visits.csv --schema schema.toml --vary feature-bound=1,2,4 --epsilon 1 --output best.json",
    ),
)
def search(arguments: argparse.Namespace) -> None:
    """Read, check, charge, search, save, state."""
    from discreet.search.selection import PrivateSearchCV

    schema, size = _schema(arguments)
    name = catalog.name_of(arguments, schema)
    grid = dict(arguments.vary)
    if catalog.MODELS[name].reads not in ("rows", "entries"):
        raise ValueError(f"a search compares linear models, not {name}; use `discreet fit`")
    catalog.check_options(grid, name)
    with options.output(arguments, size=size, reason=_ONCE):
        ledger = arguments.outcome.ledger(arguments.ledger)
        found = PrivateSearchCV(
            catalog.estimator(arguments, schema, bad_rows=arguments.bad_rows),
            grid,
            epsilon=arguments.epsilon,
            delta=arguments.delta,
            neighboring=arguments.neighboring,
            method=arguments.search_by,
            holdout=arguments.holdout,
            ledger=ledger,
            bad_rows=arguments.bad_rows,
            max_rows_per_group=arguments.max_rows_per_group,
        )
        chosen = _fitted(arguments, schema, found)
        _save(arguments, chosen.best_estimator_, schema, ledger)
    chosen_values = (f"{name.replace('_', '-')} {value}" for name, value in chosen.best_params_.items())
    say(f"Chosen: {', '.join(chosen_values)}")


@command(
    "label",
    "let teachers trained on private rows label public rows (private transfer)",
    "Split a private table among teachers (scikit-learn models that are trained separately) and release their noisy "
    "votes about PUBLIC rows. The labels may be published: train any model on them, as often as you like. For "
    "classes, rows on which the teachers disagree may have no label; for a number, the noisy mean is released. If the "
    "schema has a group column, all rows of a person go to one teacher, and people are protected.",
    *DATA,
    SCHEMA,
    *(catalog.option(name, required=name == "X_public") for name in catalog.MODELS["transfer"].options),
    *GUARANTEE,
    *LEDGER,
    *to_write("labels to write, one line per public row (CSV)", required=True),
    argument("--statement", metavar="FILE", help="also write the privacy statement (JSON)"),
    examples=(
        "discreet label visits.csv --schema schema.toml --public survey.csv --teacher forest --epsilon 1 "
        "--ledger budget.ledger --output labels.csv",
    ),
)
def label(arguments: argparse.Namespace) -> None:
    """Read, check, charge, label, write, state."""
    from discreet._files import write_atomically
    from discreet.tables.csv_files import write_csv
    from discreet.tables.schema import Schema

    schema = Schema.from_file(arguments.schema)
    beside = argparse.Namespace(**vars(arguments) | {"output": arguments.statement})
    with (
        options.output(arguments, reason=", and other labels cost another charge"),
        options.output(beside, reason=", and a statement belongs to its labels"),
    ):
        ledger = arguments.outcome.ledger(arguments.ledger)
        arguments.model = "transfer"
        teachers = catalog.estimator(arguments, schema, ledger=ledger, n_samples=arguments.max_rows)
        found, public = _taught(arguments, schema, teachers)
        try:
            write_csv(arguments.output, _released(found, public))
            if arguments.statement is not None:
                write_atomically(arguments.statement, found.privacy_.to_json().encode())
        except OSError as error:
            raise OSError(f"the rows were labeled but not written: {error.strerror or error}") from error
    arguments.outcome.written = f"the labels are in {arguments.output}"
    say(found.privacy_)
    say(f"\nLabels of {len(public)} public rows written to {arguments.output}")
    options.print_balance(arguments, ledger, found.privacy_)


def _released(found: Any, public: Any) -> dict[str, Any]:
    """Return the public rows with their labels and, if released, votes."""
    released: dict[str, Any] = {name: public.column(name).to_pylist() for name in public.column_names}
    labels = [None if value is None else str(value) for value in found.labels_]
    votes = getattr(found, "votes_", None)
    if votes is None:
        return {**released, "label": labels}
    shares = {f"votes for {name}": votes[:, i] for i, name in enumerate(found.classes_)}
    return {**released, "label": labels, **shares}


_PLANNED = ("n_teachers", "aggregator", "max_unstable", "expected_unstable", "label_private")


@command(
    "plan-transfer",
    "show how many teachers a private transfer needs (also: plan transfer)",
    "Print how many teachers, which aggregator and how much agreement a private transfer needs. Reads no data.",
    argument(
        "--rows",
        type=count,
        required=True,
        metavar="N",
        help="public number of records; of users with --by-user",
    ),
    argument("--queries", type=count, required=True, metavar="Q", help="public rows to label"),
    argument("--classes", type=count, default=2, metavar="K", help="number of classes (default: 2)"),
    *map(catalog.option, _PLANNED),
    argument("--by-user", action="store_true", help="protect users with several records"),
    *GUARANTEE,
    prog="discreet plan transfer",
    examples=("discreet plan transfer --rows 494021 --queries 5000 --epsilon 1 --delta 1e-6",),
)
def plan_transfer(arguments: argparse.Namespace) -> None:
    """Plan and print."""
    from discreet.transfer import PrivateTransferClassifier

    given = {name: getattr(arguments, name) for name in _PLANNED}
    model = PrivateTransferClassifier(
        catalog.teacher("linear", "classes"),
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        neighboring=arguments.neighboring,
        **{name: value for name, value in given.items() if value is not None},
    )
    plan = model.plan(arguments.rows, arguments.queries, arguments.classes, by_group=arguments.by_user)
    promise = plan.guarantee
    say(plan)
    say(f"A ledger would be charged at most ({promise.epsilon:g}, {promise.delta:.3g}). No data was read.")


@command(
    "predict",
    "apply a model to a CSV or Parquet file",
    "Apply a model to a table with the columns of its schema; writes one line per row, in order. A recommender takes "
    "ratings of old or new users and writes the best items for each of them.",
    MODEL_FILE,
    *DATA,
    *to_write("predictions to write (CSV)", required=True),
    argument(
        "--top",
        type=count,
        default=10,
        metavar="N",
        help="items that a recommender shows each user (default: 10)",
    ),
    examples=("discreet predict model.json new_visits.csv --output predictions.csv",),
)
def predict(arguments: argparse.Namespace) -> None:
    """Load, read, predict, write."""
    from discreet import card
    from discreet.tables.csv_files import write_csv

    model = card.load(arguments.model)
    if not hasattr(model, "predict"):
        raise ValueError(
            f"{type(model).__name__} makes no predictions; `discreet show {arguments.model}` prints what was released"
        )
    recommends = hasattr(model, "recommend")
    if not recommends:
        schema = options.schema_of(model, arguments.model, "use discreet.card.load and predict in Python")
    with options.output(arguments), working("predicting"):
        if recommends:
            written, what = _recommended(model, options.read(arguments), arguments.top), "recommendations"
        else:
            written, what = _predicted(model, options.read(arguments, list(schema.columns))), "predictions"
        write_csv(arguments.output, written)
    say(f"{len(next(iter(written.values())))} {what} written to {arguments.output}")


def _predicted(model: Any, table: Any) -> dict[str, Any]:
    """Return predictions and, if the model has them, probabilities."""
    rows = options.rows_of(model, table)
    found: dict[str, Any] = {"prediction": model.predict(rows)}
    if hasattr(model, "predict_proba"):
        chances = model.predict_proba(rows)
        found |= {f"probability of {label}": chances[:, i] for i, label in enumerate(model.classes_)}
    return found


def _recommended(model: Any, table: Any, top: int) -> dict[str, Any]:
    """Return the best items that each user has not rated, best first."""
    import numpy as np

    found: dict[str, list[Any]] = {"user": [], "item": [], "score": []}
    users = table.column("user").combine_chunks().dictionary_encode()
    if users.null_count:
        raise ValueError(f"{users.null_count} rows have no user; add the names, or remove these rows")
    codes = users.indices.to_numpy(zero_copy_only=False)
    order, counts = np.argsort(codes, kind="stable"), np.bincount(codes, minlength=len(users.dictionary))
    ends = np.cumsum(counts)
    for user, begin, end in zip(users.dictionary.to_pylist(), ends - counts, ends, strict=True):
        items, scores = model.recommend(table.take(order[begin:end]), top)
        found["user"] += [user] * len(items)
        found["item"] += np.asarray(items).tolist()
        found["score"] += np.asarray(scores).tolist()
    return found
