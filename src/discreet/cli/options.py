"""Options that several commands share, and the estimator they describe."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

NEIGHBORING = ("replace-one", "add-remove-one", "zero-out")  # spelled out: help must not import NumPy
MODELS = {"logistic": "PrivateLogisticRegression", "svm": "PrivateLinearSVC"}


def add_guarantee(parser: argparse.ArgumentParser, *, delta_default: str) -> None:
    """--epsilon, --delta, --neighboring."""
    parser.add_argument(
        "--epsilon", type=positive, required=True, metavar="E", help="privacy budget; smaller is more private"
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


def fraction(text: str) -> float:
    """A number in [0, 1), for argparse."""
    return _number(text, lambda value: 0 <= value < 1, "at least 0 and less than 1")


def count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return value


def _number(text: str, allowed: Any, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and allowed(value)):
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return value


def keep_inputs(output: str, *inputs: str | None) -> None:
    """Refuse to write where one of the files that are read lies, under whatever name."""
    place = Path(output)
    for given in inputs:
        if given is not None and place.exists() and Path(given).exists() and place.samefile(given):
            raise FileExistsError(
                f"--output {output!r} would replace {given!r}, which is read; name another file"
            )


def check_output(output: str, *, overwrite: bool, reason: str, size: int) -> None:
    """Notice what would keep ``size`` bytes from being written while nothing is charged yet."""
    from discreet._files import check_writable

    if Path(output).exists() and not overwrite:
        raise FileExistsError(f"{output!r} exists, and {reason}; name another file, or pass --overwrite")
    check_writable(output, size)


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
