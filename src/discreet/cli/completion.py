"""The command ``completion``: print a script for the shell's completion of commands, options and choices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from discreet.cli.options import argument, command
from discreet.display.console import say

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
    from discreet.cli import _parser

    commands = dict(_commands(_parser()))
    say((_fish if arguments.shell == "fish" else _bash)(commands).rstrip("\n"))


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
