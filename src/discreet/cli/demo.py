"""``discreet demo``: the whole path on invented people."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from discreet.cli import options


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        help="train private models on a synthetic cohort and show what it costs",
        description="Invent a hospital cohort, train with and without privacy, charge a ledger.",
    )
    parser.add_argument(
        "--people", type=options.count, default=50_000, metavar="N", help="at least 2000 (default: 50000)"
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="keep cohort, schema and ledger here, for the other commands"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the demonstration in the given or a temporary folder."""
    from discreet import demo

    if arguments.output is not None:
        Path(arguments.output).mkdir(parents=True, exist_ok=True)
        demo.run(Path(arguments.output), n_people=arguments.people, keep=True)
        return
    with tempfile.TemporaryDirectory(prefix="discreet-demo-") as folder:
        demo.run(Path(folder), n_people=arguments.people, keep=False)
