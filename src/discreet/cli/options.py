"""Options that several commands share, and the estimator they describe."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NEIGHBORING = ("replace-one", "add-remove-one", "zero-out")  # spelled out: help must not import NumPy
MODELS = {"logistic": "PrivateLogisticRegression", "svm": "PrivateLinearSVC"}


def add_guarantee(parser: argparse.ArgumentParser, *, delta_default: str) -> None:
    """--epsilon, --delta, --neighboring."""
    parser.add_argument(
        "--epsilon", type=epsilon, required=True, metavar="E", help="privacy budget; smaller is more private"
    )
    parser.add_argument(
        "--delta",
        type=fraction,
        metavar="D",
        help=f"probability of exceeding epsilon (default: {delta_default})",
    )
    parser.add_argument(
        "--neighboring", choices=NEIGHBORING, default="replace-one", help="which data sets must look alike"
    )


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """--ledger, --max-rows."""
    parser.add_argument("--ledger", metavar="FILE", help="ledger to charge, see `discreet ledger create`")
    parser.add_argument(
        "--max-rows", type=count, metavar="N", help="public bound on the rows, under add-remove-one"
    )


def tell_balance(arguments: argparse.Namespace, ledger: Any) -> None:
    """What a charge left in the ledger, or that nobody keeps count."""
    from discreet._console import note, paragraph

    if ledger is None:
        note("no --ledger was given: nothing keeps count of what this data has been used for")
    else:
        paragraph(f"Left in {arguments.ledger}: {ledger.remaining()}")


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model, --solver, --feature-bound, --l2, --no-intercept."""
    parser.add_argument("--model", choices=tuple(MODELS), default="logistic", help="default: logistic")
    parser.add_argument("--solver", default="auto", metavar="NAME", help="default: auto, by public facts")
    parser.add_argument(
        "--feature-bound",
        type=positive,
        metavar="R",
        help="longest row norm (default: what the schema allows)",
    )
    parser.add_argument(
        "--l2", type=positive, metavar="L", help="ridge coefficient (default: by public rule)"
    )
    parser.add_argument("--no-intercept", action="store_true", help="fit no constant term")


def estimator(arguments: argparse.Namespace, feature_bound: float, **parameters: Any) -> Any:
    """The unfitted estimator that the shared options describe."""
    from discreet.estimators import linear

    kind = getattr(linear, MODELS[arguments.model])
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


def classes(schema: Any) -> list[Any]:
    """The classes of a schema's target; the estimators of the command line have no other kind of target."""
    target = schema.target
    if target is not None and target.bounds is not None:
        raise ValueError(
            f"the target {target.column!r} is a number, and the command line fits classifiers only; fit it in Python, "
            "by discreet.PrivateRidge, PrivateHuberRegressor, PrivateQuantileRegressor or PrivatePoissonRegressor"
        )
    found: list[Any] = schema.classes.tolist()
    return found


def check_max_rows(arguments: argparse.Namespace) -> None:
    """Refuse a bound on the rows where their number is public and no bound would be used."""
    if arguments.max_rows is not None and arguments.neighboring != "add-remove-one":
        raise ValueError(
            f"--max-rows is for --neighboring add-remove-one: under {arguments.neighboring} the number of rows is "
            "public and is used as it is; leave it out"
        )


def positive(text: str) -> float:
    """A finite number greater than 0, for argparse."""
    return _number(text, lambda value: value > 0, "a finite number greater than 0")


def epsilon(text: str) -> float:
    """A budget, for argparse; beyond the largest nothing is promised and no accountant has digits enough."""
    return _number(text, lambda value: 0 < value <= 1e6, "greater than 0 and at most 1000000")


def fraction(text: str) -> float:
    """A number in [0, 1), for argparse."""
    return _number(text, lambda value: 0 <= value < 1, "at least 0 and less than 1")


def count(text: str, most: int = 10**12) -> int:
    """A whole number from 1 to ``most``, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, got {text!r}")
    return value


def columns(text: str) -> int:
    """A number of columns that can be planned for, for argparse."""
    return count(text, 10**7)


def _number(text: str, allowed: Any, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and allowed(value)):
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return value


@contextlib.contextmanager
def output(
    arguments: argparse.Namespace, *inputs: str | None, size: int = 1 << 16, reason: str = ""
) -> Iterator[None]:
    """Hold the place that --output names, if it does, until it is written; before anything is charged.

    inputs : files that are read, and must not be replaced, whatever they are called.
    size : bytes that must be free.
    reason : why an existing file is not replaced unless asked for.
    """
    from discreet._files import check_writable, reserved

    place = arguments.output
    if place is None:
        yield
        return
    if place == "-":
        raise ValueError("--output writes to a file, and '-' is none; name one, or ./- if that is its name")
    _keep_inputs(place, inputs)
    check_writable(place, size)
    with contextlib.ExitStack() as held:
        if not arguments.overwrite:
            try:
                held.enter_context(reserved(place))
            except FileExistsError:
                raise FileExistsError(
                    f"{place!r} exists{reason}; name another file, or pass --overwrite"
                ) from None
        yield


def _keep_inputs(place: str, inputs: tuple[str | None, ...]) -> None:
    """Refuse to write where one of the files that are read lies, under whatever name."""
    for given in inputs:
        if (
            given is not None
            and Path(place).exists()
            and Path(given).exists()
            and Path(place).samefile(given)
        ):
            raise FileExistsError(
                f"--output {place!r} would replace {given!r}, which is read; name another file"
            )


def model_and_schema(path: str, instead: str) -> tuple[Any, Any]:
    """A saved model and the schema that reads a table for it; ``instead`` says what to do where it has none."""
    from discreet import card

    model = card.load(path)
    schema = getattr(model, "schema_", None)
    if schema is None:
        raise card.CardError(
            f"{path!r} was saved without a schema, so it cannot read a table's columns; {instead}"
        )
    return model, schema
