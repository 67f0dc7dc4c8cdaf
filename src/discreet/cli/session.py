"""Report what a command has done when it ends early, and word errors with the options that the command has."""

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

from discreet.cli.options import InputFile

if TYPE_CHECKING:
    from discreet._checks import HintedError


class Outcome:
    """The file that a command wrote and the charge that it made, as far as it came."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._charging = False
        self._charge: Any = None
        self.written = ""  # what is safe on disk, in words

    def ledger(self, path: str | None) -> Any:
        """The ledger that the command will charge, None if none was given."""
        if path is None:
            from discreet.privacy.guarantee import NoLedgerWarning

            warnings.simplefilter("ignore", NoLedgerWarning)  # the command says so itself, in its own words
            return None
        from discreet.privacy.ledger.ledger import Ledger

        class Watched(Ledger):
            """A ledger whose charges are noted: others may charge the same file meanwhile."""

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
        """What was done, in a few words; nothing if nothing was."""
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
        """What was done or not, and what to do about the ledger, if there is one."""
        if self._path is None:
            return self.summary()
        nothing = [] if self._charging else ["nothing was charged"]
        return [*nothing, *self.summary(), f"`discreet ledger show {self._path}` tells what is left"]


def opened(path: str, kind: Any = None) -> Any:
    """An existing ledger; a missing one is an error, not a new one."""
    from discreet.privacy.ledger.ledger import Ledger

    if not Path(path).exists():
        raise FileNotFoundError(f"there is no ledger {path!r}; `discreet ledger create` makes one")
    return (kind or Ledger)(path)


def check_visible(arguments: argparse.Namespace, what: str) -> None:
    """Refuse to pay for what nobody would see."""
    if sys.stdout is None and arguments.output is None:
        raise ValueError(
            f"standard output is closed, so the {what} would be paid for and lost; open it, or name a file "
            "with --output"
        )


def release(result: Any, arguments: argparse.Namespace, what: str) -> None:
    """Write and print numbers that are paid for: where one way fails, another must be left."""
    import json

    from discreet._files import write_atomically
    from discreet.display.console import say

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
    """Raise for what is wrong with the options together, before anything heavy is imported.

    A file that the command reads is not there; or a bound on the rows is given where their number is public and no
    bound would be used.
    """
    for value in vars(arguments).values():
        if not isinstance(value, InputFile) or "://" in value or any(mark in value for mark in "*?["):
            continue
        if not Path(value).exists():  # what it holds is for its reader to say
            raise FileNotFoundError(f"there is no {value.what} {str(value)!r}{_ADVICE.get(value.what, '')}")
    relation = getattr(arguments, "neighboring", "add-remove-one")
    if getattr(arguments, "max_rows", None) is not None and relation != "add-remove-one":
        raise ValueError(
            f"--max-rows is for --neighboring add-remove-one: under {relation} the number of rows is public and is "
            "used as it is; leave it out"
        )


@contextmanager
def fitting(first: str = "planning") -> Iterator[None]:
    """Say if code must be compiled; on a terminal, show how far it is: ``first``, its phase, its planned steps."""
    from discreet.display.console import note
    from discreet.mechanisms.recording import Report, on_progress

    def tell(report: Report) -> None:
        if report.phase == "compile":
            note(report.detail)

    if sys.stderr is None or not sys.stderr.isatty():
        with on_progress(tell):
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

        with on_progress(tell), on_progress(show):
            yield


@contextmanager
def logged(*, verbose: bool) -> Iterator[None]:
    """Let other libraries log nothing; with ``verbose``, log phases and planned steps to standard error."""
    import logging  # not before it is needed: help must not wait

    last, own = logging.lastResort, logging.getLogger("discreet")
    handler, level = logging.StreamHandler(), own.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.lastResort = None  # otherwise Python prints warnings of loggers that nobody has set up
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
    """The process was asked to end (SIGTERM)."""


@contextmanager
def terminable() -> Iterator[None]:
    """Let a request to end arrive as an interruption, so that files are removed and charges are reported."""

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
}  # where the library and the command line name a parameter differently


def worded(error: HintedError, arguments: argparse.Namespace) -> str:
    """Return the message of an error with options in place of parameters, and no hint that the command lacks.

    >>> from discreet._checks import ParameterError, Setting
    >>> error = ParameterError("n_samples", "must be at least 1, got 0", Setting("n_samples"), "stop")
    >>> worded(error, argparse.Namespace(max_rows=0))
    '--max-rows must be at least 1, got 0; pass --max-rows N or stop'
    >>> worded(error, argparse.Namespace())
    'n_samples must be at least 1, got 0; stop'
    """
    from discreet._checks import NamedError, either  # not before it is needed: help must not wait for NumPy

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
            yield hint.worded(f"{option} {either(list(map(str, hint.values))) or 'N'}")


def _option(parameter: str, arguments: argparse.Namespace) -> str | None:
    """The option for a parameter of the library, if the command has one."""
    name = _OPTIONS.get(parameter, parameter)
    return f"--{name.replace('_', '-')}" if hasattr(arguments, name) else None
