"""Commands about model files, none of which is charged: ``show``, ``card``, ``key``, ``sign``, ``export``."""

from __future__ import annotations

import argparse
from typing import Any

from discreet.cli import options
from discreet.cli.options import (
    MODEL_FILE,
    argument,
    command,
    count,
    input_file,
    ledger_file,
    section,
    to_write,
)
from discreet.cli.session import opened
from discreet.display.console import say, table

FORMATS = {"onnx": ".onnx", "scikit-learn": ".joblib"}
ABOUT = {  # the declarations of `discreet.card.About`
    "title": "a few words",
    "purpose": "what the model is for, and what it must not be used for",
    "data": "which table it was trained on",
    "encoder": "which encoder made the features: name, version, hash of its weights",
    "period": "which time the table covers",
    "date": "when the model was released",
    "owner": "who answers for the model",
    "approval": "who approved the release, and when",
}


@command(
    "show",
    "print the guarantee and the released numbers of a model file",
    "Print the guarantee and the coefficients of a model file; for logistic models also odds ratios: of a category "
    "against the first one of its column, of a number from one end of its declared range to the other. Everything "
    "shown is already released and costs nothing.",
    MODEL_FILE,
    argument("--top", type=count, default=40, metavar="N", help="show the N largest (default: 40)"),
    examples=("discreet show model.json --top 10",),
)
def show(arguments: argparse.Namespace) -> None:
    """Load and print."""
    from discreet import card as cards

    read = cards.read(arguments.model)
    promise = read.privacy.guarantee
    if read.privacy.secure:
        say(
            f"{read.estimator}, ({promise.epsilon:g}, {promise.delta:.3g})-differentially private, "
            f"{promise.neighboring.value}, unit: {promise.unit}"
        )
    else:
        say(f"{read.estimator}, NOT PRIVATE: its noise was seeded for a test")
    found = cards.coefficients(read.model())
    table(found.title, found.header, found.largest(arguments.top))
    if found.remark:
        say(found.remark)


@command(
    "card",
    "write a page about a model (HTML)",
    "Write one HTML page with the guarantee, the released numbers and the settings of a model; it runs no script and "
    "loads nothing from a network. What you declare is published with it. Shapes of additive models need the extra "
    "`report`.",
    MODEL_FILE,
    ledger_file("ledger that paid, to show the total spent"),
    argument(
        "--dossier",
        action="store_true",
        help="verify the file and write a dossier in Markdown instead: NIST SP 800-226, EDPB 28/2024, ISO/IEC 27559, "
        "and a record for the Differential Privacy Deployments Registry",
    ),
    argument(
        "--audit",
        type=count,
        metavar="RUNS",
        help="attack the model's mechanism with RUNS runs per data set, and put the report into the dossier",
    ),
    section(
        "what you declare",
        *(argument(f"--{name}", metavar="TEXT", help=words) for name, words in ABOUT.items()),
    ),
    *to_write("page or dossier to write", required=True, metavar="FILE"),
    examples=(
        "discreet card model.json --output model.html",
        "discreet card model.json --dossier --audit 2000 --ledger budget.db --output dossier.md",
        "discreet card model.json --purpose 'planning beds' --owner 'ward office' --output model.html",
    ),
)
def card(arguments: argparse.Namespace) -> None:
    """Load, draw, write."""
    from discreet import card as cards
    from discreet._files import write_atomically
    from discreet.card.card import About
    from discreet.card.dossier import dossier

    if arguments.audit is not None and not arguments.dossier:
        raise ValueError("--audit needs --dossier; use `discreet audit MODEL` for a separate report")
    read = cards.read(arguments.model)
    ledger = None if arguments.ledger is None else opened(arguments.ledger)
    declared = {name: getattr(arguments, name) for name in ABOUT if getattr(arguments, name) is not None}
    about = About(**(read.about.to_dict() | declared))
    with options.output(arguments, size=1 << 20):
        if arguments.dossier:
            from discreet.cli.trust import attack_file

            report = None if arguments.audit is None else attack_file(arguments.model, arguments.audit)
            text = dossier(arguments.model, ledger=ledger, audit=report, about=about)
            write_atomically(arguments.output, f"{text}\n".encode())
        else:
            cards.to_html(read, arguments.output, about=about, ledger=ledger)
    say(f"Written to {arguments.output}")


@command(
    "key",
    "make a pair of keys: one to sign model files with, one to check signatures",
    "Make an Ed25519 key pair. Keep the private key secret; an existing file is never replaced. Give the public key to "
    "those who verify your models.",
    argument("private", metavar="PRIVATE", help="new file for the private key (PEM)"),
    argument("public", metavar="PUBLIC", help="new file for the public key (PEM)"),
    examples=("discreet key private.pem public.pem",),
)
def key(arguments: argparse.Namespace) -> None:
    """Make the pair."""
    from discreet.card import new_key

    new_key(arguments.private, arguments.public)
    say(f"Keys written: keep {arguments.private} secret, publish {arguments.public}")


@command(
    "sign",
    "sign a model file",
    "Sign the content of a model file with a private key; the signed copy holds the same model. "
    "`discreet verify --key PUBLIC` checks it.",
    MODEL_FILE,
    argument("--key", type=input_file("key file"), required=True, metavar="FILE", help="private key (PEM)"),
    *to_write("signed model file to write", required=True, metavar="MODEL"),
    examples=("discreet sign model.json --key private.pem --output signed.json",),
)
def sign(arguments: argparse.Namespace) -> None:
    """Read, sign, write."""
    from discreet.card import sign_file

    with options.output(arguments):
        sign_file(arguments.model, arguments.output, key=arguments.key)
    say(f"Signed model written to {arguments.output}")


@command(
    "export",
    "convert a model to ONNX or scikit-learn",
    "Write a linear model for other tools, with unchanged predictions (a scikit-learn model does not clip rows). "
    "Both take rows as the schema encodes them. An additive model becomes an ONNX graph with one input per column of "
    "the table. ONNX needs the extra `onnx`. A scikit-learn model is a joblib file, which runs code when it is "
    "loaded: load only files that you wrote.",
    MODEL_FILE,
    argument(
        "--format",
        choices=tuple(FORMATS),
        help="format (default: by the ending of --output, .onnx or .joblib)",
    ),
    *to_write("file to write", required=True),
    examples=(
        "discreet export model.json --output model.onnx",
        "discreet export model.json --output model.joblib",
    ),
)
def export(arguments: argparse.Namespace) -> None:
    """Load, convert, write."""
    from discreet import card as cards

    wanted = arguments.format or next(
        (name for name, suffix in FORMATS.items() if arguments.output.endswith(suffix)), None
    )
    if wanted is None:
        raise ValueError(
            f"--output {arguments.output!r} ends in neither {' nor '.join(FORMATS.values())}; pass --format "
            f"{' or '.join(FORMATS)}"
        )
    model = cards.load(arguments.model)
    with options.output(arguments):
        if wanted == "onnx":
            cards.to_onnx(model, arguments.output)
        else:
            _dump(cards.to_sklearn(model), arguments.output)
    say(f"Written to {arguments.output}")


def _dump(model: Any, path: str) -> None:
    """Write a scikit-learn model atomically, in joblib's format."""
    import io

    import joblib

    from discreet._files import write_atomically

    stream = io.BytesIO()
    joblib.dump(model, stream)
    write_atomically(path, stream.getvalue())
