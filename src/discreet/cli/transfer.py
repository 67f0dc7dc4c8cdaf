"""``discreet plan transfer``: teachers, unstable answers and consensus, from public numbers only."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from discreet.cli import options

_NAME = "plan-transfer"
# Spelled out: help must not import NumPy.
AGGREGATORS = ("auto", "shares", "sparse-vector", "plurality", "confident")


def joined(argv: Sequence[str]) -> list[str]:
    """The two words ``plan transfer`` as the one command they are."""
    return [_NAME, *argv[2:]] if list(argv[:2]) == ["plan", "transfer"] else list(argv)


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        _NAME,
        prog="discreet plan transfer",
        help="the same for teachers and a student (also: plan transfer)",
        description="Print how many teachers, which aggregator and how much agreement a private transfer needs. "
        "Reads no data.",
    )
    parser.add_argument(
        "--rows",
        type=options.count,
        required=True,
        metavar="N",
        help="public number of records, with --by-user of users",
    )
    parser.add_argument(
        "--queries", type=options.count, required=True, metavar="Q", help="public rows to label"
    )
    parser.add_argument("--classes", type=options.count, default=2, metavar="K", help="default: 2")
    parser.add_argument("--teachers", type=options.count, metavar="B", help="default: by public rule")
    parser.add_argument("--unstable", type=options.count, metavar="T", help="refusals before halting")
    parser.add_argument(
        "--expected-unstable",
        type=options.fraction,
        metavar="S",
        help="guessed share of questions on which teachers disagree (default: nothing is known)",
    )
    parser.add_argument("--aggregator", choices=AGGREGATORS, default="auto", help="default: auto")
    parser.add_argument("--by-user", action="store_true", help="protect users with several records")
    options.add_guarantee(parser, delta_default="1 / rows^2")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Plan and print."""
    from discreet._console import say
    from discreet.privacy.guarantee import Guarantee, Neighboring
    from discreet.transfer.partition import changed_teachers
    from discreet.transfer.planner import plan_transfer

    relation = Neighboring(arguments.neighboring)
    delta = arguments.delta if arguments.delta is not None else 1.0 / arguments.rows**2
    plan = plan_transfer(
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
