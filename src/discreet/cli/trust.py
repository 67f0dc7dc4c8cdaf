"""Commands that assess and check models: ``evaluate``, ``intervals``, ``verify``, ``audit``, ``attest``."""

from __future__ import annotations

import argparse
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.cli import options
from discreet.cli.options import (
    DATA,
    DELTA,
    GUARANTEE,
    LEDGER,
    MAX_ROWS_PER_GROUP,
    MODEL_FILE,
    argument,
    command,
    count,
    epsilon,
    fraction,
    input_file,
    ledger_file,
    to_write,
)
from discreet.cli.session import check_visible, fitting, opened, release
from discreet.display.console import say, table_lines, working

_LARGEST_REPORT = 1 << 20  # bytes that must be free before the ledger is charged, without the bins


@command(
    "evaluate",
    "private accuracy, AUC, calibration and confusion of a model on a held-out table",
    "Evaluate a model on private rows it was not trained on. Everything is checked before the ledger is charged; all "
    "metrics together cost one epsilon.",
    MODEL_FILE,
    *DATA,
    *GUARANTEE,
    *LEDGER,
    argument(
        "--by", metavar="COLUMN", help="categorical column of the schema; adds metrics for each category"
    ),
    argument("--group", metavar="COLUMN", help=argparse.SUPPRESS),
    MAX_ROWS_PER_GROUP,
    argument("--bins", type=count, default=20, metavar="B", help="bins of probabilities (default: 20)"),
    argument(
        "--confidence",
        type=fraction,
        default=0.95,
        metavar="C",
        help="confidence of every interval (default: 0.95)",
    ),
    *to_write("also write metrics and statement (JSON)"),
    examples=(
        "discreet evaluate model.json held_out.csv --epsilon 0.5 --by sex --ledger budget.ledger",
        "discreet evaluate model.json held_out.csv --epsilon 0.5 --max-rows-per-group 2 --output metrics.json",
    ),
)
def evaluate(arguments: argparse.Namespace) -> None:
    """Load, read, check, charge, evaluate, write, state."""
    if arguments.group is not None:
        raise ValueError(
            f"use --by {arguments.group} for metrics of subgroups; people are the schema's group column"
        )
    check_visible(arguments, "metrics")
    model, schema = _model_and_schema(arguments, "use discreet.evaluate in Python")
    with options.output(
        arguments,
        size=_LARGEST_REPORT + 256 * arguments.bins,
        reason=", and another evaluation costs another charge",
    ):
        ledger = arguments.outcome.ledger(arguments.ledger)
        result = _evaluated(arguments, model, schema, ledger)
        release(result, arguments, "metrics")
    options.print_balance(arguments, ledger, result.privacy_)


def _model_and_schema(arguments: argparse.Namespace, instead: str) -> tuple[Any, Any]:
    from discreet import card

    model = card.load(arguments.model)
    return model, options.schema_of(model, arguments.model, instead)


def _evaluated(arguments: argparse.Namespace, model: Any, schema: Any, ledger: Any) -> Any:
    from discreet.evaluation.evaluate import evaluate as evaluated

    with working("evaluating"):
        table, groups = options.read_grouped(arguments, schema)
        rows, labels = options.rows_of(model, table), schema.target_values(table)
        by, values = _subgroups(schema, table, arguments.by)
        return evaluated(
            model,
            rows,
            labels,
            confidence=arguments.confidence,
            bins=arguments.bins,
            by=by,
            by_values=values,
            **options.budget_of(arguments, groups=groups, ledger=ledger),
        )


def _subgroups(schema: Any, table: Any, name: str | None) -> tuple[Any, list[Any] | None]:
    """Return every row's category and the public list of categories; None for rows of other categories."""
    if name is None:
        return None, None
    import numpy as np

    from discreet.tables.domains import Categorical, category_codes
    from discreet.tables.reading import column

    categories = getattr(schema.columns.get(name), "categories", None)
    if categories is None:
        known = [other for other, domain in schema.columns.items() if isinstance(domain, Categorical)]
        raise ValueError(
            f"--by needs a categorical column of the model's schema, one of {known}, got {name!r}"
        )
    labels = np.array([*categories, None], dtype=object)
    return labels[category_codes(column(table, name), tuple(categories))], list(categories)


@command(
    "intervals",
    "private confidence intervals for the coefficients of a linear or logistic model",
    "Compute confidence intervals for the coefficients in the population, which include noise and sampling error. They "
    "use an epsilon of their own. For logistic models of two classes, ridge and least squares.",
    MODEL_FILE,
    *DATA,
    argument("--epsilon", type=epsilon, required=True, metavar="E", help="budget of the intervals"),
    DELTA,
    *LEDGER,
    MAX_ROWS_PER_GROUP,
    argument(
        "--level",
        type=fraction,
        default=0.95,
        metavar="C",
        help="confidence of each interval (default: 0.95)",
    ),
    argument(
        "--robust", action="store_true", help="do not assume that the model is correct; needs more rows"
    ),
    argument("--steps", type=count, metavar="N", help="Newton steps (default: 1 for numbers, 3 for classes)"),
    *to_write("also write estimates, intervals and statement (JSON)"),
    examples=("discreet intervals model.json visits.csv --epsilon 1 --ledger budget.ledger",),
)
def intervals(arguments: argparse.Namespace) -> None:
    """Load, read, check, charge, estimate, write, state."""
    from discreet.intervals.intervals import UnsureWarning, coefficient_intervals

    check_visible(arguments, "intervals")
    model, schema = _model_and_schema(arguments, "use discreet.coefficient_intervals in Python")
    with options.output(arguments, size=_LARGEST_REPORT, reason=", and more intervals cost another charge"):
        ledger = arguments.outcome.ledger(arguments.ledger)
        table, groups = options.read_grouped(arguments, schema)
        rows, labels = schema.encode(table)
        with fitting(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsureWarning)  # printed with the table
            found = coefficient_intervals(
                model,
                rows,
                labels,
                level=arguments.level,
                robust=arguments.robust,
                steps=arguments.steps,
                levels=schema.levels,
                **options.budget_of(arguments, groups=groups, ledger=ledger),
            )
        release(_Named(found, schema.feature_names), arguments, "intervals")
    options.print_balance(arguments, ledger, found.privacy_)


@dataclass(frozen=True)
class _Named:
    """Intervals with the names of their coefficients."""

    found: Any
    names: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per coefficient except those of reference levels, the intercept last."""
        parts = ("estimate", "standard_error", "noise", "lower", "upper")
        names = (*self.names, "intercept")[: len(self.found.estimate)]
        return [
            {"name": name, **{part: float(getattr(self.found, part)[place]) for part in parts}}
            for place, name in enumerate(names)
            if place not in self.found.references
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready values."""
        return {
            "level": self.found.level,
            "references": [self.names[place] for place in self.found.references],
            "doubt": self.found.doubt,
            "coefficients": self.rows(),
            "privacy": self.found.privacy_.to_dict(),
        }

    def __str__(self) -> str:

        header = ("coefficient", "estimate", "std. error", "due to noise", "lower", "upper")
        rows = [
            [f"{cell:.5g}" if isinstance(cell, float) else cell for cell in row.values()]
            for row in self.rows()
        ]
        references = ", ".join(self.names[place] for place in self.found.references)
        lines = [
            f"{100 * self.found.level:g}% intervals, for rows as encoded by the schema",
            *table_lines(header, rows),
            f"Levels are compared with {references}." if references else "",
            self.found.doubt,
            str(self.found.privacy_),
        ]
        return "\n".join(filter(None, lines))


@command(
    "verify",
    "check a model file: its epsilon, its charge in a ledger, its signature",
    "Check that a model file is intact and that its claimed epsilon follows from its events; with --key, who signed "
    "it; with --ledger, which charge paid for it. Exit code 1 if anything is wrong.",
    MODEL_FILE,
    argument(
        "--key",
        type=input_file("key file"),
        metavar="FILE",
        help="public key (PEM) that must have signed the model",
    ),
    ledger_file("ledger that must contain the charge named in the model file"),
    examples=("discreet verify model.json --ledger budget.ledger --key public.pem",),
)
def verify(arguments: argparse.Namespace) -> None:
    """Verify and print the findings."""
    from discreet import card

    ledger = None if arguments.ledger is None else opened(arguments.ledger)
    say(str(card.verify(arguments.model, key=arguments.key, ledger=ledger)))


@command(
    "audit",
    "attack a model's guarantee and replay its mechanisms on worst-case neighbors",
    "Try to refute a privacy claim: fit the same configuration many times on two synthetic worst-case data sets that "
    "differ in one record, and bound epsilon from below. Reads no private data and charges no ledger.",
    argument(
        "subject",
        metavar="MODEL_OR_ESTIMATOR",
        help=f"a model file written by `discreet fit`; one of {', '.join(options.AUDITED)}; or a mechanism, stream, "
        "recommender or model by its class name, such as GaussianMechanism, PrivateFTRL or PrivateRidge, at epsilon 1, "
        "delta 0.01",
    ),
    argument(
        "--program",
        action="store_true",
        help="MODEL_OR_ESTIMATOR is a command that runs another program and prints what it releases; see docs/audit.md",
    ),
    argument("--epsilon", type=epsilon, metavar="E", help="epsilon of an estimator (default: 1)"),
    argument("--delta", type=fraction, metavar="D", help="delta of an estimator (default: 0.01)"),
    argument(
        "--neighboring", choices=options.NEIGHBORING, help="relation of an estimator (default: replace-one)"
    ),
    argument(
        "--solver",
        metavar="NAME",
        help="solver of an estimator (default: objective), or one to use for a model file instead of its own",
    ),
    argument(
        "--at-delta",
        type=fraction,
        default=1e-2,
        metavar="D",
        help="delta at which epsilon is bounded (default: 0.01)",
    ),
    argument("--runs", type=count, default=2000, metavar="N", help="runs per data set (default: 2000)"),
    argument("--confidence", type=fraction, default=0.95, metavar="C", help="default: 0.95"),
    argument(
        "--seed",
        type=int,
        metavar="S",
        help="seed for repeatable noise; by default the real noise is attacked",
    ),
    argument(
        "--twin",
        action="store_true",
        help="also attack a copy with half the noise, which the attack should catch",
    ),
    argument("--plot", action="store_true", help="also draw the attacker's scores"),
    *to_write("write the report with its charts to a page", metavar="FILE.html"),
    examples=(
        "discreet audit logistic --runs 500 --twin",
        "discreet audit model.json --output audit.html",
        "discreet audit --program 'python theirs.py'",
    ),
)
def audit(arguments: argparse.Namespace) -> int:
    """Attack and print; return 1 if the guarantee is refuted."""
    from discreet.audit.report import bars, histogram
    from discreet.display.charts import require

    if arguments.runs < 20:
        raise ValueError(f"--runs must be at least 20, got {arguments.runs}")
    if not 0 < arguments.confidence < 1:
        raise ValueError("--confidence must lie strictly between 0 and 1")
    if arguments.output is not None and not arguments.output.endswith(".html"):
        raise ValueError(f"--output must end in .html, got {arguments.output}")
    if arguments.output is not None:
        require()
    with options.output(arguments):
        with _many_fits(arguments.runs):
            report = _audited(arguments)
        if arguments.output is not None:
            report.to_html(arguments.output)
    say(report)
    say(bars(report))
    if arguments.plot:
        say(histogram(report.attacked))
    if arguments.output is not None:
        say(f"Written to {arguments.output}")
    return 0 if report.passed else 1


def attack_file(path: str, runs: int) -> Any:
    """Attack the configuration of a model file, for its dossier."""
    from discreet.audit import report

    with _many_fits(runs):
        return report.audit(_configured(path, None), runs=max(20, runs), with_twin=True)


@contextmanager
def _many_fits(runs: int) -> Iterator[None]:
    """Show a status line, and suppress warnings: every fit to a few synthetic records would warn."""
    from discreet import NoiseWarning, PrivacyWarning

    with working(f"fitting {2 * runs} models"), warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        warnings.simplefilter("ignore", PrivacyWarning)
        yield


def _configured(path: str, solver: str | None) -> Any:
    """Return an unfitted estimator with the guarantee, parameters and solver of a model file."""
    from discreet import card
    from discreet.audit.subjects import pinned

    found = card.read(path)
    return pinned(found.model(), solver or found.parameters.get("solver"))


def _audited(arguments: argparse.Namespace) -> Any:
    from discreet.audit import catalog, report

    if arguments.program:
        _refuse(arguments, "epsilon", "delta", "neighboring", "solver", "seed")
        if arguments.twin:
            raise ValueError(
                "--twin needs this package's mechanisms: it cannot halve the noise of another program"
            )
        words = shlex.split(arguments.subject)
        return report.audit_program(words, runs=arguments.runs, confidence=arguments.confidence)
    chosen = {
        "runs": arguments.runs,
        "delta": arguments.at_delta,
        "confidence": arguments.confidence,
        "seed": arguments.seed,
        "with_twin": arguments.twin,
    }
    name = arguments.subject
    path = Path(name)
    if name not in options.AUDITED and not (path.exists() or path.suffix or len(path.parts) > 1):
        _refuse(arguments, "epsilon", "delta", "neighboring", "solver")
        return report.audit_subject(catalog.named(name), **chosen)
    return report.audit(_subject(arguments), **chosen)


def _subject(arguments: argparse.Namespace) -> Any:
    """Return the estimator to audit: that of a model file, or the one the options describe."""
    if arguments.subject not in options.AUDITED:
        _refuse(arguments, "epsilon", "delta", "neighboring")
        return _configured(arguments.subject, arguments.solver)
    from discreet.estimators import classifiers

    kind = getattr(classifiers, options.AUDITED[arguments.subject])
    return kind(
        epsilon=1.0 if arguments.epsilon is None else arguments.epsilon,
        delta=1e-2 if arguments.delta is None else arguments.delta,
        neighboring=arguments.neighboring or "replace-one",
        solver=arguments.solver or "objective",
        classes=[0, 1],
    )


def _refuse(arguments: argparse.Namespace, *names: str) -> None:
    """Raise if an option was given that the subject determines itself."""
    given = [name for name in names if getattr(arguments, name) is not None]
    if given:
        raise ValueError(
            f"--{given[0]} is for {' and '.join(options.AUDITED)}; {arguments.subject} is audited with its own settings"
        )


@command(
    "attest",
    "check an attestation of this package against what is installed",
    "Read a file written by `make attest` in a checkout and check it: the installed code and proofs must be those that "
    "were attested, every claimed epsilon is recomputed from its event, and no audit in it may have failed. Exit code "
    "1 if anything is wrong.",
    argument("attestation", metavar="FILE", help="attestation.json"),
    examples=("discreet attest attestation.json",),
)
def attest(arguments: argparse.Namespace) -> int:
    """Verify and print the findings; return 1 if something is wrong."""
    from discreet.card.attestation import verify_attestation

    found = verify_attestation(arguments.attestation)
    say(str(found))
    return 0 if found.passed else 1
