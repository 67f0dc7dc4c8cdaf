"""The command ``plan``: what a fit would run and cost, from public facts alone."""

from __future__ import annotations

import argparse
from typing import Any

from discreet.cli import catalog, options
from discreet.cli.options import (
    GUARANTEE,
    MAX_ROWS_PER_GROUP,
    argument,
    columns,
    command,
    count,
    epsilon,
    fraction,
    input_file,
    one_of,
    real,
    section,
)


@command(
    "plan",
    "what a fit would cost and add, before any data is read",
    "Print the noise, the regularization and the cost of a fit: those that `discreet fit` would have. Reads no data.",
    one_of(
        argument("--rows", type=count, metavar="N", help="public number of rows"),
        argument(
            "--people",
            type=count,
            metavar="N",
            help="public number of people, if they can have several rows; of users, for a recommender",
        ),
    ),
    one_of(
        argument("--columns", type=columns, metavar="P", help="number of columns after encoding"),
        argument(
            "--schema", type=input_file("schema file"), metavar="FILE", help="public domains and target"
        ),
        argument("--items", type=columns, metavar="M", help="items of the catalog, for a recommender"),
    ),
    argument("--classes", type=count, metavar="K", help="default: the schema's, otherwise 2"),
    argument(
        "--target-bounds",
        type=real,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="of a number to predict, where there is no schema",
    ),
    argument("--sparse", action="store_true", help="the rows will be a sparse matrix"),
    MAX_ROWS_PER_GROUP,
    *GUARANTEE,
    catalog.MODEL,
    section(
        "simulation on invented data of the same shape, for linear models",
        argument(
            "--simulate", action="store_true", help="also fit invented data, to see accuracy against epsilon"
        ),
        argument(
            "--epsilons",
            type=epsilon,
            nargs="+",
            metavar="E",
            help="at which to fit (default: a tenth, a third, once and three times --epsilon)",
        ),
        argument(
            "--attainable",
            type=fraction,
            default=0.85,
            metavar="A",
            help="score of the best possible model, your guess (default: 0.85)",
        ),
        argument("--repeats", type=count, default=3, metavar="N", help="invented data sets (default: 3)"),
        argument("--seed", type=int, metavar="S", help="of the invented data"),
    ),
    examples=(
        "discreet plan --schema schema.toml --rows 50000 --epsilon 1",
        "discreet plan --schema visits.toml --people 20000 --max-rows-per-group 3 --epsilon 1 --model additive",
        "discreet plan --model recommender --people 100000 --items 5000 --epsilon 1",
        "discreet plan --columns 30 --rows 50000 --epsilon 1 --simulate",
    ),
)
def plan(arguments: argparse.Namespace) -> None:
    """Plan and print."""
    from discreet.display.console import say
    from discreet.tables.schema import Schema

    if arguments.simulate and arguments.sparse:
        raise ValueError("--simulate invents dense rows; leave out --sparse, or plan without --simulate")
    schema = None if arguments.schema is None else Schema.from_file(arguments.schema)
    model = catalog.MODELS[catalog.name_of(arguments, schema)]
    if model.reads == "teachers":
        raise ValueError(
            "teachers are planned by questions, not by columns: `discreet plan transfer --rows N --queries Q`"
        )
    rows = _planned_rows(arguments, schema, model)
    bound = rows if arguments.neighboring == "add-remove-one" else None
    shared: dict[str, Any] = {"n_samples": bound, "max_rows_per_group": arguments.max_rows_per_group}
    if arguments.target_bounds is not None:
        if schema is not None:
            raise ValueError("--target-bounds is for plans without a schema, which says them")
        shared["target_bounds"] = tuple(arguments.target_bounds)
    estimator = catalog.estimator(arguments, schema, **shared)
    shape = _shape(arguments, schema, model, estimator)
    planned = estimator.plan(rows, **shape)
    say(planned)
    promise = planned.guarantee
    say(f"A ledger would be charged at most ({promise.epsilon:g}, {promise.delta:.3g}). No data was read.")
    if model.reads in ("rows", "entries"):
        from discreet.estimators.linear import warn_if_noise

        warn_if_noise(planned.problem, planned.record_guarantee)
    if arguments.simulate:
        _simulate(arguments, estimator, rows, shape)


def _planned_rows(arguments: argparse.Namespace, schema: Any, model: catalog.Model) -> int:
    """How many rows a fit would count: with people, all their places."""
    if (arguments.items is not None) != (model.reads == "ratings"):
        raise ValueError(
            "a recommender is planned with --people and --items, other models with --schema or --columns"
        )
    per_person = arguments.max_rows_per_group
    if model.reads == "ratings":
        if arguments.people is None or per_person is not None:
            raise ValueError(
                "a recommender protects users with all their ratings: pass --people, and no rows per group"
            )
        return int(arguments.people)
    group = None if schema is None else schema.group
    if group is not None and per_person is None:
        raise ValueError(options.several_rows(group))
    if per_person is None and arguments.people is not None:
        raise ValueError(
            "--people is for people with several rows, of which --max-rows-per-group are used; pass --rows"
        )
    if per_person is None:
        return int(arguments.rows)
    if arguments.neighboring == "add-remove-one":
        if arguments.rows is None:
            raise ValueError(
                "under add-remove-one the number of people is private; pass --rows, a bound on all rows"
            )
        return int(arguments.rows)
    if arguments.people is None:
        raise ValueError(
            "with --max-rows-per-group the number of people is public, not that of rows; pass --people"
        )
    return int(arguments.people * per_person)


def _shape(
    arguments: argparse.Namespace, schema: Any, model: catalog.Model, estimator: Any
) -> dict[str, Any]:
    """The other public sizes, as the ``plan`` of such an estimator names them."""
    if model.reads == "ratings":
        return {"n_items": arguments.items}
    if model.reads == "table":
        if schema is None:
            raise ValueError("shapes follow from the domains of columns; pass --schema")
        return {}
    shape: dict[str, Any] = {"n_features": arguments.columns if schema is None else schema.n_features}
    if model.reads == "points":
        return shape
    shape["sparse"] = arguments.sparse
    if "classes" in model.estimators:
        declared = 2 if schema is None else len(schema.classes)
        shape["n_classes"] = declared if arguments.classes is None else arguments.classes
    return shape


def _simulate(arguments: argparse.Namespace, estimator: Any, rows: int, shape: dict[str, Any]) -> None:
    """Print scores against epsilon on invented data."""
    from discreet.display.console import say, working
    from discreet.estimators.linear import PrivateLinearModel
    from discreet.estimators.rehearsal import simulate

    if not isinstance(estimator, PrivateLinearModel) or arguments.max_rows_per_group is not None:
        raise ValueError("--simulate invents rows of single people for linear models; plan without it")
    epsilons = arguments.epsilons or [share * arguments.epsilon for share in (0.1, 1 / 3, 1.0, 3.0)]
    classes = shape.get("n_classes")
    with working(f"fitting {len(epsilons) * arguments.repeats} models to invented data"):
        found = simulate(
            estimator,
            rows,
            shape["n_features"],
            classes or 2,
            epsilons=epsilons,
            attainable=arguments.attainable,
            repeats=arguments.repeats,
            random_state=arguments.seed,
        )
    score = "R^2" if classes is None else "Accuracy"
    guess = "0 the mean" if classes is None else f"{1 / classes:.4g} a guess"
    say(
        f"\n{score} on invented data of this shape, where {arguments.attainable:.4g} is the best possible and {guess}:"
    )
    for row in found:
        say(f"  {row}")
