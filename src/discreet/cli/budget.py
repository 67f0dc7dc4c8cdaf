"""Commands about budgets: ``ledger``, and ``plan`` (what a fit would run and cost, from public facts alone)."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from discreet.cli import catalog, options
from discreet.cli.options import (
    GUARANTEE,
    MAX_ROWS_PER_GROUP,
    Command,
    argument,
    columns,
    command,
    count,
    epsilon,
    fraction,
    input_file,
    one_of,
    real,
    schema_file,
    section,
)
from discreet.cli.session import opened
from discreet.display.console import say, table, working

_BARS, _WIDTH = 25, 40
_PARTS = 3  # of a composed event, in a table
_RECORDED = "not recorded"
_LEDGER = argument("path", type=input_file("ledger"), metavar="FILE", help="ledger file")


@command(
    "create",
    "make a new ledger, whose cap can never be changed",
    None,
    argument("path", metavar="FILE", help="new file"),
    argument("--epsilon", type=epsilon, required=True, metavar="E", help="cap on epsilon"),
    argument(
        "--delta",
        type=fraction,
        required=True,
        metavar="D",
        help="cap on delta, far below 1 / people: 1e-6 is usual",
    ),
    argument(
        "--neighboring",
        choices=options.NEIGHBORING,
        default="replace-one",
        help="which change of the data is hidden (default: replace-one); every charge must use the same one",
    ),
    argument(
        "--unit",
        choices=("record", "user"),
        default="record",
        help="whom the cap protects: each row, or all rows of a person",
    ),
    argument(
        "--fixed-sizes",
        action="store_true",
        help="promise that no charge's size will depend on an earlier result; composition is then tighter",
    ),
    examples=(
        "discreet ledger create budget.ledger --epsilon 3 --delta 1e-6",
        "discreet ledger create people.ledger --epsilon 3 --delta 1e-6 --unit user",
    ),
)
def create(arguments: argparse.Namespace) -> None:
    """Create a new ledger."""
    from discreet.privacy.ledger.ledger import Ledger

    if Path(arguments.path).exists():
        raise FileExistsError(
            f"{arguments.path!r} exists, and the cap of a ledger cannot be changed; choose another path"
        )
    ledger = Ledger(
        arguments.path,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        neighboring=arguments.neighboring,
        adaptive=not arguments.fixed_sizes,
        unit=arguments.unit,
    )
    say(f"Ledger {arguments.path} created: {_cap(ledger)}")


@command("show", "show what was spent, by whom, and what is left", None, _LEDGER)
def show(arguments: argparse.Namespace) -> None:
    """Print cap, spent and remaining."""
    from discreet.privacy.page import shares

    ledger = opened(arguments.path)
    sizes = "may depend on earlier results" if ledger.adaptive else "were all fixed in advance"
    say(f"Ledger     {arguments.path}")
    say(f"Cap        {_cap(ledger)}")
    say(f"Sizes      {sizes}")
    say(f"Spent      {ledger.spent()}")
    say(f"Remaining  {ledger.remaining()}")
    say(f"Head       {ledger.head}")
    charges = ledger.history()
    if charges:
        say()
        table(
            "Who spent what: the increase of the total by each person's charges, in order of the charges",
            ("who", "charges", "epsilon"),
            [(who, count, f"{raised:.4g}") for who, count, raised in shares(ledger, charges)],
        )


@command("history", "every charge, in order", None, _LEDGER)
def history(arguments: argparse.Namespace) -> None:
    """Print every charge with the price it would have alone."""

    ledger = opened(arguments.path)
    rows = [
        (
            charge.sequence,
            charge.time,
            charge.who,
            charge.label,
            _protected(charge),
            f"{ledger.price(charge.event):.4g}",
            _described(charge.event),
            _RECORDED if charge.released is None else charge.released[:12],
        )
        for charge in ledger.history()
    ]
    title = f"Charges to {arguments.path} ({_cap(ledger)})"
    alone = f"epsilon alone at {ledger.delta:g}"
    table(title, ("no", "time (UTC)", "who", "label", "unit", alone, "event", "release"), rows)


@command("plot", "show what had been spent after each charge, as bars", None, _LEDGER)
def plot(arguments: argparse.Namespace) -> None:
    """Draw one bar per charge, or per several charges of a long history, relative to the cap."""

    ledger = opened(arguments.path)
    charges = ledger.history()
    if not charges:
        say(f"Nothing has been charged to {arguments.path} ({_cap(ledger)})")
        return
    step = -(-len(charges) // _BARS)
    rows = []
    for charge in (*charges[step - 1 :: step], *([charges[-1]] if len(charges) % step else [])):
        spent = ledger.spent(first=charge.sequence).epsilon
        share = min(1.0, spent / ledger.epsilon)
        rows.append((charge.sequence, charge.time[:16], "#" * round(share * _WIDTH), f"{spent:.4g}"))
    table(
        f"Spent of {arguments.path} ({_cap(ledger)}; a full bar is the cap)",
        ("no", "time (UTC)", "spent".ljust(_WIDTH), "epsilon"),
        rows,
    )


@command(
    "export",
    "write cap, balance and every charge as JSON",
    None,
    _LEDGER,
    argument("--output", metavar="JSON", help="file to write; standard output by default"),
    argument("--overwrite", action="store_true", help="replace an existing file"),
)
def export(arguments: argparse.Namespace) -> None:
    """Write everything in the ledger as one JSON document."""
    import json

    from discreet._files import write_atomically

    ledger = opened(arguments.path)
    content = {
        "epsilon": ledger.epsilon,
        "delta": ledger.delta,
        "neighboring": ledger.neighboring.value,
        "adaptive": ledger.adaptive,
        "unit": ledger.unit,
        "head": ledger.head,
        "spent": ledger.spent().epsilon,
        "charges": [
            {
                "sequence": charge.sequence,
                "time": charge.time,
                "who": charge.who,
                "label": charge.label,
                "unit": charge.unit,
                "kind": charge.kind,
                "released": charge.released,
                "digest": charge.digest,
                "epsilon_alone": ledger.price(charge.event),
                "event": charge.event.to_dict(),
            }
            for charge in ledger.history()
        ],
    }
    text = json.dumps(content, indent=1)
    if arguments.output is None:
        say(text)
        return
    with options.output(arguments, size=len(text) + 1):
        write_atomically(arguments.output, (text + "\n").encode())
    say(f"{len(content['charges'])} charges written to {arguments.output}")


@command(
    "policy",
    "show caps and spending of every person and data set of a policy",
    None,
    argument("path", metavar="TOML", help="policy file; see docs/ledger.md"),
)
def policy(arguments: argparse.Namespace) -> None:
    """Print the caps and the spending."""
    from discreet.privacy.ledger.policy import Policy
    from discreet.privacy.page import price_by_person

    shared = Policy.read(arguments.path)
    rows: list[tuple[str, str, str, str]] = []
    for name in shared.data:
        whole = shared.dataset(name)
        spent = price_by_person(whole)
        rows.append((name, "(everybody)", f"{whole.epsilon:g}", f"{whole.spent().epsilon:.4g}"))
        for who, shares in shared.people.items():
            if name in shares:
                rows.append((name, who, str(shares[name]), f"{spent.get(who, 0.0):.4g}"))
    table(f"Budgets of {arguments.path}", ("data set", "who", "cap", "spent"), rows)


ledger = Command(
    "ledger",
    "create, show, list, plot and export a privacy budget",
    "A ledger is one file per data set: a cap, and every charge ever made against it.",
    actions=(create, show, history, plot, export, policy),
    examples=(
        "discreet ledger create budget.ledger --epsilon 3 --delta 1e-6",
        "discreet ledger create people.ledger --epsilon 3 --delta 1e-6 --unit user",
        "discreet ledger show budget.ledger",
    ),
)


def _protected(charge: Any) -> str:
    """Return the unit that a charge protects, and the kind of guarantee unless it is plain DP."""
    return f"{charge.unit or _RECORDED}{'' if charge.kind in (None, 'dp') else f' ({charge.kind})'}"


def _cap(ledger: Any) -> str:
    unit = "" if ledger.unit == "record" else f", per {ledger.unit}"
    return f"epsilon {ledger.epsilon:g}, delta {ledger.delta:g}, {ledger.neighboring.value}{unit}"


def _described(event: Any) -> str:
    """Describe an event in one short line."""
    from discreet.privacy.events import flatten

    parts = [_part(leaf, times) for leaf, times in flatten(event)]
    more = [f"{len(parts) - _PARTS} more"] if len(parts) > _PARTS else []
    return " + ".join([*parts[:_PARTS], *more]) or "nothing"


def _part(event: Any, times: int) -> str:
    """Describe one mechanism with its numbers, the events inside it, and how often it ran."""
    from discreet.privacy.events import Approximated, Discretized

    if isinstance(event, Approximated | Discretized):  # these only state how the noise was sampled
        text = _described(event.event)
    else:
        values = {field.name: getattr(event, field.name) for field in fields(event)}
        inner = [
            _described(part)
            for part in (*values.get("events", ()), *([event.event] if "event" in values else ()))
        ]
        numbers = [f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, int | float)]
        text = f"{type(event).__name__}({', '.join([*inner, *numbers])})"
    if times == 1:
        return text
    return f"{times} x ({text})" if " + " in text else f"{times} x {text}"


@command(
    "plan",
    "show what a fit would cost and how much noise it would add, before any data is read",
    "Print the noise, the regularization and the cost that `discreet fit` would have. Reads no data.",
    one_of(
        argument("--rows", type=count, metavar="N", help="public number of rows"),
        argument(
            "--people",
            type=count,
            metavar="N",
            help="public number of people who can have several rows, or of a recommender's users",
        ),
    ),
    one_of(
        argument("--columns", type=columns, metavar="P", help="number of columns after encoding"),
        schema_file("public domains and target"),
        argument("--items", type=columns, metavar="M", help="items of the catalog, for a recommender"),
    ),
    argument(
        "--classes", type=count, metavar="K", help="number of classes (default: the schema's, otherwise 2)"
    ),
    argument(
        "--target-bounds",
        type=real,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="lowest and highest value of a numeric target, without a schema",
    ),
    argument("--sparse", action="store_true", help="the rows will be a sparse matrix"),
    MAX_ROWS_PER_GROUP,
    *GUARANTEE,
    catalog.MODEL,
    section(
        "simulation on synthetic data of the same shape, for linear models",
        argument(
            "--simulate", action="store_true", help="also fit synthetic data, to see accuracy against epsilon"
        ),
        argument(
            "--epsilons",
            type=epsilon,
            nargs="+",
            metavar="E",
            help="values to try (default: a tenth, a third, once and three times --epsilon)",
        ),
        argument(
            "--attainable",
            type=fraction,
            default=0.85,
            metavar="A",
            help="your guess of the best possible score (default: 0.85)",
        ),
        argument(
            "--repeats", type=count, default=3, metavar="N", help="number of synthetic data sets (default: 3)"
        ),
        argument("--seed", type=int, metavar="S", help="seed of the synthetic data"),
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
    from discreet.tables.schema import Schema

    if arguments.simulate and arguments.sparse:
        raise ValueError("--simulate makes dense rows; leave out --sparse or --simulate")
    schema = None if arguments.schema is None else Schema.from_file(arguments.schema)
    model = catalog.MODELS[catalog.name_of(arguments, schema)]
    if model.reads == "teachers":
        raise ValueError("use `discreet plan transfer --rows N --queries Q` for teachers")
    rows = _planned_rows(arguments, schema, model)
    bound = rows if arguments.neighboring == "add-remove-one" else None
    shared: dict[str, Any] = {"n_samples": bound, "max_rows_per_group": arguments.max_rows_per_group}
    if arguments.target_bounds is not None:
        if schema is not None:
            raise ValueError("--target-bounds is for plans without a schema; the schema declares them")
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
    """Return the number of rows that a fit would count; with people, the places for their rows."""
    if (arguments.items is not None) != (model.reads == "ratings"):
        raise ValueError(
            "a recommender is planned with --people and --items, other models with --schema or --columns"
        )
    per_person = arguments.max_rows_per_group
    if model.reads == "ratings":
        if arguments.people is None or per_person is not None:
            raise ValueError(
                "a recommender protects users with all their ratings: pass --people, without --max-rows-per-group"
            )
        return int(arguments.people)
    group = None if schema is None else schema.group
    if group is not None and per_person is None:
        raise ValueError(options.several_rows(group))
    if per_person is None and arguments.people is not None:
        raise ValueError(
            "--people goes with --max-rows-per-group, for people with several rows; otherwise pass --rows"
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
            "with --max-rows-per-group the number of people is public instead of the number of rows; pass --people"
        )
    return int(arguments.people * per_person)


def _shape(
    arguments: argparse.Namespace, schema: Any, model: catalog.Model, estimator: Any
) -> dict[str, Any]:
    """Return the other public sizes, as keyword arguments of the estimator's ``plan``."""
    if model.reads == "ratings":
        return {"n_items": arguments.items}
    if model.reads == "table":
        if schema is None:
            raise ValueError("an additive model is planned from the domains of its columns; pass --schema")
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
    """Print scores against epsilon on synthetic data."""
    from discreet.estimators.linear import PrivateLinearModel
    from discreet.estimators.rehearsal import simulate

    if not isinstance(estimator, PrivateLinearModel) or arguments.max_rows_per_group is not None:
        raise ValueError("--simulate supports linear models with one row per person; leave it out")
    epsilons = arguments.epsilons or [share * arguments.epsilon for share in (0.1, 1 / 3, 1.0, 3.0)]
    classes = shape.get("n_classes")
    with working(f"fitting {len(epsilons) * arguments.repeats} models to synthetic data"):
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
    guess = "0 for the mean" if classes is None else f"{1 / classes:.4g} for a guess"
    say(
        f"\n{score} on synthetic data of this shape ({arguments.attainable:.4g} for the best model, {guess}):"
    )
    for row in found:
        say(f"  {row}")
