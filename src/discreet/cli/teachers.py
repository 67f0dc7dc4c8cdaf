"""Commands for teachers that label public rows: ``label``, and ``plan transfer``."""

from __future__ import annotations

import argparse
from typing import Any

from discreet.cli import catalog, options
from discreet.cli.options import (
    DATA,
    GUARANTEE,
    LEDGER,
    SCHEMA,
    argument,
    command,
    count,
    to_write,
)
from discreet.cli.session import fitting


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
    from discreet.display.console import say, working
    from discreet.tables.reading import write_csv
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
        with working("reading the tables"):
            rows, labels, groups, asked = options.read_both(arguments, schema)
            public = schema.transform(asked)
        with fitting():
            found = teachers.fit(rows, labels, public, groups=groups)
        try:
            write_csv(arguments.output, _released(found, asked))
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
    shares = (
        {} if votes is None else {f"votes for {name}": votes[:, i] for i, name in enumerate(found.classes_)}
    )
    return {**released, "label": labels, **shares}


@command(
    "plan-transfer",
    "what a fit of teachers and a student would cost (also: plan transfer)",
    "Print how many teachers, which aggregator and how much agreement a private transfer needs. Reads no data.",
    argument(
        "--rows",
        type=count,
        required=True,
        metavar="N",
        help="public number of records, with --by-user of users",
    ),
    argument("--queries", type=count, required=True, metavar="Q", help="public rows to label"),
    argument("--classes", type=count, default=2, metavar="K", help="default: 2"),
    argument("--unstable", type=count, metavar="T", help="disagreements before halting"),
    *(catalog.option(name) for name in ("n_teachers", "expected_unstable", "aggregator")),
    argument("--by-user", action="store_true", help="protect users with several records"),
    *GUARANTEE,
    prog="discreet plan transfer",
    examples=("discreet plan transfer --rows 494021 --queries 5000 --epsilon 1 --delta 1e-6",),
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
        n_teachers=arguments.n_teachers or "auto",
        aggregator=arguments.aggregator or "auto",
        max_unstable=arguments.unstable or "auto",
        expected_unstable=arguments.expected_unstable,
        changed=changed_teachers(relation, by_group=arguments.by_user, label_private=False),
    )
    say(plan)
    say(f"A ledger would be charged at most ({plan.guarantee.epsilon:g}, {delta:.3g}). No data was read.")
