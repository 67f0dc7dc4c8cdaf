"""``discreet audit``: what an attacker learns from a model's configuration, against what was promised."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

from discreet.cli import options


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "audit",
        help="attack a model's promise and replay its mechanisms on worst-case neighbors",
        description="Fit the same configuration many times on invented worst-case neighbors and bound epsilon from "
        "below. Reads no private data and charges no ledger.",
    )
    parser.add_argument(
        "subject",
        metavar="MODEL_OR_ESTIMATOR",
        help=f"a model file written by `discreet fit`; one of {', '.join(options.MODELS)}; or a mechanism, stream, "
        "recommender or model by its class name, such as GaussianMechanism, PrivateFTRL or PrivateRidge, at epsilon 1, "
        "delta 0.01",
    )
    parser.add_argument("--epsilon", type=options.epsilon, metavar="E", help="of an estimator (default: 1)")
    parser.add_argument("--delta", type=options.fraction, metavar="D", help="of an estimator (default: 0.01)")
    parser.add_argument(
        "--neighboring", choices=options.NEIGHBORING, help="of an estimator (default: replace-one)"
    )
    parser.add_argument(
        "--solver",
        metavar="NAME",
        help="of an estimator (default: objective), or in place of the one that a model file was fitted by",
    )
    parser.add_argument(
        "--at-delta",
        type=options.fraction,
        default=1e-2,
        metavar="D",
        help="where to measure (default: 0.01)",
    )
    parser.add_argument(
        "--runs", type=options.count, default=2000, metavar="N", help="per data set (default: 2000)"
    )
    parser.add_argument(
        "--confidence", type=options.fraction, default=0.95, metavar="C", help="default: 0.95"
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="repeatable noise; by default the real noise is attacked"
    )
    parser.add_argument(
        "--twin",
        action="store_true",
        help="also attack a copy with half the noise, to show that it is noticed",
    )
    parser.add_argument("--plot", action="store_true", help="also draw the attacker's scores")
    parser.add_argument("--output", metavar="FILE.html", help="write the report with its charts to a page")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing page")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Attack and print; 1 if the promise turned out to be false."""
    from discreet._console import say
    from discreet._files import write_atomically
    from discreet.audit.report import bars, histogram, page
    from discreet.charts import require

    if arguments.runs < 20:
        raise ValueError(f"--runs must be at least 20 to say anything, got {arguments.runs}")
    if not 0 < arguments.confidence < 1:
        raise ValueError("--confidence must lie strictly between 0 and 1")
    if arguments.output is not None and not arguments.output.endswith(".html"):
        raise ValueError(f"--output must end in .html, got {arguments.output}")
    if arguments.output is not None:
        require()
    with options.output(arguments):
        report = _attacked(arguments)
        if arguments.output is not None:
            write_atomically(arguments.output, page(report).encode())
    say(report)
    say(bars(report))
    if arguments.plot:
        say(histogram(report.attacked))
    if arguments.output is not None:
        say(f"Written to {arguments.output}")
    return 0 if report.passed else 1


def _attacked(arguments: argparse.Namespace) -> Any:
    from discreet import NoiseWarning, PrivacyWarning
    from discreet._console import working

    with working(f"fitting {2 * arguments.runs} models"), warnings.catch_warnings():
        # Worst cases are a few invented records, of which every fit would warn.
        warnings.simplefilter("ignore", NoiseWarning)
        warnings.simplefilter("ignore", PrivacyWarning)
        return _audited(arguments)


def _audited(arguments: argparse.Namespace) -> Any:
    from discreet.audit import report, table

    chosen = {
        "runs": arguments.runs,
        "delta": arguments.at_delta,
        "confidence": arguments.confidence,
        "seed": arguments.seed,
        "with_twin": arguments.twin,
    }
    name = arguments.subject
    path = Path(name)
    if name not in options.MODELS and not (path.exists() or path.suffix or len(path.parts) > 1):
        _refuse(arguments, "epsilon", "delta", "neighboring", "solver")
        return report.audit_subject(table.named(name), **chosen)
    return report.audit(_subject(arguments), **chosen)


def _subject(arguments: argparse.Namespace) -> Any:
    """The estimator to audit: a saved model's configuration and promise, or the one the options describe."""
    if arguments.subject not in options.MODELS:
        from discreet import card
        from discreet.audit.pinned import pinned

        _refuse(arguments, "epsilon", "delta", "neighboring")
        found = card.read(arguments.subject)
        return pinned(found.model(), arguments.solver or found.parameters.get("solver"))
    from discreet.estimators import linear

    kind = getattr(linear, options.MODELS[arguments.subject])
    return kind(
        epsilon=1.0 if arguments.epsilon is None else arguments.epsilon,
        delta=1e-2 if arguments.delta is None else arguments.delta,
        neighboring=arguments.neighboring or "replace-one",
        solver=arguments.solver or "objective",
        classes=[0, 1],
    )


def _refuse(arguments: argparse.Namespace, *names: str) -> None:
    """Raise if an option was given that the subject decides for itself."""
    given = [name for name in names if getattr(arguments, name) is not None]
    if given:
        raise ValueError(
            f"--{given[0]} is for {' and '.join(options.MODELS)}; {arguments.subject} is audited as it is"
        )
