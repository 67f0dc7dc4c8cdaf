"""Run the papers' tables again and write one page that shows them.

python -m benchmarks.papers list
python -m benchmarks.papers --quick
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from discreet.cli.options import count

if TYPE_CHECKING:
    from benchmarks.papers.results import Row

_FOLDER = "bench-results"


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers",
        description="Run the papers' tables with this library, beside their printed figures. Results are appended "
        "to one file, so a run can be stopped and continued. `report` makes the page.",
    )
    parser.add_argument(
        "tables",
        nargs="*",
        metavar="TABLE",
        help="tables to run (all by default); `list` names them, `report` makes the page from what has been run",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tiny version of everything, in about a minute"
    )
    parser.add_argument(
        "--output", default=_FOLDER, metavar="DIR", help=f"folder of results and page ({_FOLDER})"
    )
    parser.add_argument(
        "--page", metavar="DIR", help="folder of the page and its pictures, if not that of the results"
    )
    parser.add_argument("--repeats", type=count, metavar="N", help="at most N repeats of everything")
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME",
        help="this data set only; may be given several times",
    )
    parser.add_argument(
        "--method",
        action="append",
        default=[],
        metavar="NAME",
        help="this method of linear classifiers only; may be given several times",
    )
    parser.add_argument(
        "--no-peers",
        action="store_true",
        help="leave out other libraries, for which environments would be made and packages downloaded",
    )
    parser.add_argument("--again", action="store_true", help="make rows again that are there already")
    parser.add_argument("--jobs", type=count, default=1, metavar="N", help="run N tables at a time (1)")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run tables, list them, or write the page."""
    from benchmarks.papers import report, runner
    from benchmarks.papers.methods import METHODS
    from benchmarks.papers.runs import Effort
    from benchmarks.papers.tables import TABLES
    from discreet.display.charts import require
    from discreet.display.console import say, table

    if arguments.tables == ["list"]:
        table("Tables", ("name", "what it redoes"), [(name, made.title) for name, made in TABLES.items()])
        return
    require()
    if arguments.tables == ["report"]:
        say(f"Page written to {report.write(arguments.output, arguments.page)}")
        return
    unknown = [name for name in arguments.tables if name not in TABLES]
    if unknown:
        raise ValueError(f"there is no table {unknown[0]!r}; the tables are {', '.join(TABLES)}")
    unknown = [name for name in arguments.method if name not in METHODS]
    if unknown:
        raise ValueError(f"there is no method {unknown[0]!r}; the methods are {', '.join(METHODS)}")
    effort = Effort(
        arguments.quick,
        arguments.repeats,
        not arguments.no_peers,
        arguments.data,
        arguments.method,
        arguments.again,
    )
    names = arguments.tables or list(TABLES)
    if arguments.jobs > 1:
        made = runner.run_side_by_side(names, arguments.output, arguments.jobs, effort=effort, tell=tell)
    else:
        made = runner.run(names, arguments.output, effort=effort, tell=tell)
    page = report.write(arguments.output, arguments.page)
    say(f"{len(made)} new results in {arguments.output}; page: {page}")


def tell(row: Row) -> None:
    """One line about a new row."""
    from discreet.display.console import note

    found = row.status if row.value is None else f"{row.value:.4g}"
    at = f", {row.x:g}" if row.x else ""
    note(f"{row.table}, {row.dataset}{at}, {row.method}, epsilon {row.epsilon:g}, repeat {row.seed}: {found}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 1 after an error, which is printed."""
    try:
        run(parser().parse_args(argv))
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
