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
    shape.add_argument(
        "--columns", type=options.columns, metavar="P", help="number of columns after encoding"
    )
    shape.add_argument("--schema", metavar="FILE", help="TOML or JSON file with the public domains")
    parser.add_argument(
        "--classes", type=options.count, metavar="K", help="default: the schema's, otherwise 2"
    )
    parser.add_argument("--sparse", action="store_true", help="the rows will be a sparse matrix")
    options.add_guarantee(parser, delta_default="1 / rows^2")
    options.add_model(parser)
    simulation = parser.add_argument_group("simulation on invented data of the same shape")
    simulation.add_argument(
        "--simulate", action="store_true", help="also fit invented data, to see accuracy against epsilon"
    )
    simulation.add_argument(
        "--epsilons",
        type=options.epsilon,
        nargs="+",
        metavar="E",
        help="at which to fit (default: a tenth, a third, once and three times --epsilon)",
    )
    simulation.add_argument(
        "--attainable",
        type=options.fraction,
        default=0.85,
        metavar="A",
        help="accuracy of the best possible model, your guess (default: 0.85)",
    )
    simulation.add_argument(
        "--repeats", type=options.count, default=3, metavar="N", help="invented data sets (default: 3)"
    )
    simulation.add_argument("--seed", type=int, metavar="S", help="of the invented data")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Plan and print."""
    from discreet._console import say

    if arguments.simulate and arguments.sparse:
        raise ValueError("--simulate invents dense rows; leave out --sparse, or plan without --simulate")
    columns, classes, feature_bound = arguments.columns, arguments.classes, 1.0
    if arguments.schema is not None:
        from discreet.schema import Schema

        schema = Schema.from_file(arguments.schema)
        columns = schema.n_features
        feature_bound = schema.feature_bound(intercept=not arguments.no_intercept)
        if classes is None and schema.target is not None:
            classes = len(options.classes(schema))
    declared = arguments.rows if arguments.neighboring == "add-remove-one" else None
    estimator = options.estimator(arguments, feature_bound, n_samples=declared)
    classes = 2 if classes is None else classes
    planned = estimator.plan(arguments.rows, columns, classes, sparse=arguments.sparse)
    say(planned)
    promise = planned.guarantee
    say(f"A ledger would be charged at most ({promise.epsilon:g}, {promise.delta:.3g}). No data was read.")
    from discreet.forecast import warn_if_noise

    warn_if_noise(planned.problem, promise)
    if arguments.simulate:
        _simulate(arguments, estimator, columns, classes)


def _simulate(arguments: argparse.Namespace, estimator: Any, columns: int, classes: int) -> None:
    """Print accuracy against epsilon on invented data."""
    from discreet._console import say, working
    from discreet.forecast import simulate

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
