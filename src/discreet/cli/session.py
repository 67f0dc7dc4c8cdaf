"""Report what a command did before it ended early, and phrase errors with the command's own options."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli import catalog
from discreet.cli.options import InputFile
from discreet.display.console import note, say

if TYPE_CHECKING:
    from discreet._checks import HintedError


class Outcome:
    """What a command has done so far: the file it wrote and the charge it made."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._charging = False
        self._charge: Any = None
        self.written = ""  # what is on disk, in words

    def ledger(self, path: str | None) -> Any:
        """Open the ledger that the command will charge; None if none was given."""
        if path is None:
            from discreet.privacy.guarantee import NoLedgerWarning

            warnings.simplefilter("ignore", NoLedgerWarning)  # the command prints its own note
            return None
        from discreet.privacy.ledger.ledger import Ledger

        class Watched(Ledger):
            """A ledger that records this command's charge; other processes may charge the same file."""

            def charge(watched, *event: Any, **remarks: Any) -> Any:
                self._charging = True
                try:
                    self._charge = super().charge(*event, **remarks)
                except Exception:  # refused: nothing was charged
                    self._charging = False
                    raise
                return self._charge

        self._path = path
        return opened(path, Watched)

    def summary(self) -> list[str]:
        """Return what was done, in a few words; empty if nothing was."""
        summary = [self.written] if self.written else []
        stays = "" if summary else ", and a charge stays, whether or not anything was released"
        if self._charge is not None:
            summary.append(
                f"the ledger was charged (number {self._charge.sequence}, {self._charge.label}){stays}"
            )
        elif self._charging:
            summary.append(f"the ledger may have been charged{stays}")
        return summary

    def summary_with_ledger(self) -> list[str]:
        """Return the same, or that nothing was charged, and how to see what is left of the ledger."""
        if self._path is None:
            return self.summary()
        nothing = [] if self._charging else ["nothing was charged"]
        return [*nothing, *self.summary(), f"`discreet ledger show {self._path}` prints what is left"]


def opened(path: str, kind: Any = None) -> Any:
    """Open an existing ledger; never create one."""
    from discreet.privacy.ledger.ledger import Ledger

    if not Path(path).exists():
        raise FileNotFoundError(f"there is no ledger {path!r}; `discreet ledger create` makes one")
    return (kind or Ledger)(path)


def check_visible(arguments: argparse.Namespace, what: str) -> None:
    """Raise before a charge if the result could neither be printed nor written."""
    if sys.stdout is None and arguments.output is None:
        raise ValueError(
            f"standard output is closed, so the {what} would be charged and lost; open it, or pass --output FILE"
        )


def release(result: Any, arguments: argparse.Namespace, what: str) -> None:
    """Write and print a paid result; if one of the two fails, the other still happens."""
    import json

    from discreet._files import write_atomically

    failure = None
    if arguments.output is not None:
        try:
            write_atomically(arguments.output, json.dumps(result.to_dict(), indent=2, default=str).encode())
            arguments.outcome.written = f"the {what} are in {arguments.output}"
        except OSError as error:
            failure = error
    try:
        say(result)
    except OSError:
        if arguments.output is None or failure is not None:
            print(result, file=sys.stderr)
        raise
    if failure is not None:
        raise failure
    if arguments.output is not None:
        say(f"Written to {arguments.output}")


_ADVICE = {"ledger": "; `discreet ledger create` makes one", "key file": "; `discreet key` makes a pair"}


def check_inputs(arguments: argparse.Namespace) -> None:
    """Raise for missing input files and for --max-rows where it has no effect, before anything heavy is imported."""
    for value in vars(arguments).values():
        if not isinstance(value, InputFile) or "://" in value or any(mark in value for mark in "*?["):
            continue
        if not Path(value).exists():
            raise FileNotFoundError(f"there is no {value.what} {str(value)!r}{_ADVICE.get(value.what, '')}")
    relation = getattr(arguments, "neighboring", "add-remove-one")
    if getattr(arguments, "max_rows", None) is not None and relation != "add-remove-one":
        raise ValueError(
            f"--max-rows is for --neighboring add-remove-one; under {relation} the number of rows is public: leave it "
            "out"
        )


@contextmanager
def fitting(first: str = "planning") -> Iterator[None]:
    """Print a note if code must be compiled; on a terminal, show a progress bar that starts with ``first``."""
    from discreet.mechanisms.recording import Report, on_progress

    def note_compiling(report: Report) -> None:
        if report.phase == "compile":
            note(report.detail)

    if sys.stderr is None or not sys.stderr.isatty():
        with on_progress(note_compiling):
            yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=None)

        def show(report: Report) -> None:
            if report.steps:
                bar.update(task, completed=report.step, total=report.steps)
            phases = {"compile": "compiling", "charge": "charging"}
            bar.update(task, description=phases.get(report.phase, "fitting"))

        with on_progress(note_compiling), on_progress(show):
            yield


@contextmanager
def logged(*, verbose: bool) -> Iterator[None]:
    """Silence the logs of other libraries; with ``verbose``, log phases and planned steps to standard error."""
    import logging  # imported late, so that help is instant

    last, own = logging.lastResort, logging.getLogger("discreet")
    handler, level = logging.StreamHandler(), own.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.lastResort = None  # otherwise Python prints warnings of loggers without a handler
    if verbose:
        own.addHandler(handler)
        own.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logging.lastResort = last
        own.removeHandler(handler)
        own.setLevel(level)


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, so that temporary files are removed and charges are reported."""

    def end(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_OPTIONS = {
    "n_samples": "max_rows",
    "n_users": "max_rows",
    "pairs": "pair",
}  # parameters whose option has another name


def worded(error: HintedError, arguments: argparse.Namespace) -> str:
    """Return an error's message with options in place of parameters, without hints at options the command lacks.

    >>> from discreet._checks import ParameterError, Setting
    >>> error = ParameterError("n_samples", "must be at least 1, got 0", Setting("n_samples"), "stop")
    >>> worded(error, argparse.Namespace(max_rows=0))
    '--max-rows must be at least 1, got 0; pass --max-rows N or stop'
    >>> worded(error, argparse.Namespace())
    'n_samples must be at least 1, got 0; stop'
    >>> worded(ParameterError("n_teachers", "must be at least 2, got 1"), argparse.Namespace(n_teachers=1))
    '--teachers must be at least 2, got 1'
    """
    from discreet._checks import NamedError, either  # imported late, so that help does not wait for NumPy

    message = error.message
    if isinstance(error, NamedError) and (option := _option(error.name, arguments)):
        message = message.replace(error.name, option, 1)
    return "; ".join(filter(None, (message, either(list(_hints(error, arguments))))))


def _hints(error: HintedError, arguments: argparse.Namespace) -> Iterator[str]:
    from discreet._checks import either

    for hint in error.hint:
        if isinstance(hint, str):
            yield hint
        elif option := _option(hint.name, arguments):
            metavar = catalog.OPTIONS.get(hint.name, {}).get("metavar", "N")
            words = metavar if isinstance(metavar, str) else " ".join(metavar)
            yield hint.worded(f"{option} {either(list(map(str, hint.values))) or words}")


def _option(parameter: str, arguments: argparse.Namespace) -> str | None:
    """Return the command's option for a parameter of the library, if it has one."""
    if parameter in catalog.OPTIONS and hasattr(arguments, catalog.destination(parameter)):
        return catalog.flag(parameter)
    name = _OPTIONS.get(parameter, parameter)
    return f"--{name.replace('_', '-')}" if hasattr(arguments, name) else None
