"""The command line: `main`, the list of all commands, and what shells complete.

A command is one function with its arguments (`cli.options.command`); modules import nothing heavy before a command
runs, so that help is instant. Exit codes: 0 for success; 1 for a failure, explained in one line on standard error; 2
for a wrong command line; 130, 141 and 143 after an interruption, a broken pipe and a request to end, as in shells.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TextIO

from discreet import __version__
from discreet.cli import budget, data, models, publishing, trust
from discreet.cli.options import Parser, argument, command
from discreet.cli.session import Outcome, Terminated, check_inputs, logged, terminable, worded
from discreet.display.console import printable, say

_BASH = """\
# Completion of discreet for bash; in zsh run `autoload -U +X bashcompinit && bashcompinit` first.
_discreet() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    case "${{COMP_WORDS[1]}} $previous" in
{choices}
    esac
    if [ -z "$words" ]; then
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{options}
        esac
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; fi
    COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
}}
complete -o filenames -F _discreet discreet
"""


@command(
    "completion",
    "print a script that lets your shell complete commands and options",
    "Print a script for your shell. It lists all commands and options, so completing does not start Python.",
    argument("shell", choices=("bash", "zsh", "fish"), help="which shell"),
    examples=(
        "source <(discreet completion bash)",
        "discreet completion fish > ~/.config/fish/completions/discreet.fish",
    ),
)
def completion(arguments: argparse.Namespace) -> None:
    """Print the script."""
    commands = dict(_commands(_parser()))
    say((_fish if arguments.shell == "fish" else _bash)(commands).rstrip("\n"))


COMMANDS = {
    "tables": (data.demo, data.schema, data.describe),
    "models": (
        budget.plan,
        models.plan_transfer,
        models.fit,
        models.search,
        models.label,
        models.predict,
    ),
    "trust": (trust.evaluate, trust.intervals, trust.verify, trust.audit, trust.attest),
    "model files": (publishing.show, publishing.card, publishing.key, publishing.sign, publishing.export),
    "budget": (budget.ledger,),
    "the shell": (completion, data.warmup),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an unprintable label must not lose a paid result
    parser = _parser()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:2] == ["plan", "transfer"]:  # one command of two words
        words = [models.plan_transfer.name, *words[2:]]
    if words[:1] == ["help"]:  # accepted as by other tools
        words = [*words[1:], "--help"]
    arguments = parser.parse_args(words)
    if not hasattr(arguments, "run"):
        parser.print_help(sys.stderr)
        return 2
    done = arguments.outcome = Outcome()
    with logged(verbose=arguments.verbose), warnings.catch_warnings(), terminable():
        warnings.showwarning = _show_warning
        try:
            check_inputs(arguments)
            return int(arguments.run(arguments) or 0)
        except KeyboardInterrupt as error:
            print(printable("; ".join(["interrupted", *done.summary_with_ledger()])), file=sys.stderr)
            return 143 if isinstance(error, Terminated) else 130
        except BrokenPipeError:
            if summary := done.summary():  # without one, a closed pipe is normal: `| head`
                print(printable("; ".join(["standard output was closed", *summary])), file=sys.stderr)
            _drop_output()
            return 141
        except Exception as error:
            if arguments.traceback:
                raise
            print(
                printable(f"error: {'; '.join([_one_line(error, arguments), *done.summary()])}"),
                file=sys.stderr,
            )
            _drop_output()
            return 1


def _drop_output() -> None:
    """Discard output that cannot be written; otherwise Python tries again, and complains, when it exits."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> Parser:
    groups = "\n\n".join(
        "\n".join([f"{title}:", *(f"  {one.name:<15}{one.help}" for one in commands)])
        for title, commands in COMMANDS.items()
    )
    parser = Parser(
        prog="discreet",
        usage="discreet [--verbose] [--traceback] COMMAND ...",
        description=f"Train models on sensitive data under differential privacy.\n\n{groups}",
        epilog="`discreet COMMAND --help` explains a command; `discreet demo` shows them on invented people.\n"
        "Exit codes: 0 done, 1 refused or failed, 2 wrong usage; 130, 141, 143 interrupted, pipe closed, terminated.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"discreet {__version__}")
    parser.add_argument(
        "--traceback", action="store_true", help="show where in the code an error arose (it may quote data)"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="log phases and planned steps to standard error"
    )
    below = parser.add_subparsers(metavar="COMMAND", prog="discreet", help=argparse.SUPPRESS)
    for commands in COMMANDS.values():
        for one in commands:
            one.add_to(below, listed=False)
    return parser


def _one_line(error: Exception, arguments: argparse.Namespace) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"
    elif (checks := sys.modules.get("discreet._checks")) and isinstance(error, checks.HintedError):
        text = worded(error, arguments)
    else:
        text = str(error)
    return " ".join(text.split()) or type(error).__name__


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(printable(f"warning: {' '.join(str(message).split())}"), file=sys.stderr)


# -- completion in shells -------------------------------------------------------------------------------------


def _commands(
    parser: argparse.ArgumentParser, above: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield all commands and actions with the words that call them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield f"{above}{name}", below
                yield from _commands(below, f"{above}{name} ")


def _words(parser: argparse.ArgumentParser) -> tuple[list[str], dict[str, list[str]]]:
    """Return the options and actions of a command, and the choices of its options."""
    listed: list[str] = []
    choices: dict[str, list[str]] = {}
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        known = [str(one) for one in action.choices] if action.choices is not None else []
        if names and action.help != argparse.SUPPRESS:
            listed += names
            choices |= {name: known for name in names if known}
        elif not names:
            listed += known
    return listed, choices


def _bash(commands: dict[str, argparse.ArgumentParser]) -> str:
    choices, options = [], []
    for name, parser in sorted(commands.items(), key=lambda item: -len(item[0].split())):
        listed, known = _words(parser)
        first = name.split()[0]
        choices += [
            f'        "{first} {option}") words="{" ".join(values)}" ;;' for option, values in known.items()
        ]
        pattern = f'"{name}"' if " " in name else f'"{name} "*'
        options.append(f'            {pattern}) words="{" ".join(listed)}" ;;')
    top = " ".join(name for name in commands if " " not in name)
    return _BASH.format(choices="\n".join(choices), options="\n".join(options), commands=top)


def _fish(commands: dict[str, argparse.ArgumentParser]) -> str:
    lines = ["# Completion of discreet for fish."]
    lines += [
        f"complete -c discreet -n __fish_use_subcommand -a {name}" for name in commands if " " not in name
    ]
    for name, parser in commands.items():
        listed, known = _words(parser)
        seen = f'"__fish_seen_subcommand_from {name.split()[-1]}"'
        for word in listed:
            if word.startswith("--"):
                values = f" -xa '{' '.join(known[word])}'" if word in known else ""
                lines.append(f"complete -c discreet -n {seen} -l {word[2:]}{values}")
            else:
                lines.append(f"complete -c discreet -n {seen} -a {word}")
    return "\n".join(lines)
