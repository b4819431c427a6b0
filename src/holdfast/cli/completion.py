"""`holdfast completion`: prints a shell completion script, generated from the argument parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Any

from holdfast.cli.parser import command
from holdfast.lifecycle import STATUS, Lifecycles, State

# Values to complete where the parser accepts any text.
_VALUES: dict[str, Callable[[], list[str]]] = {
    "state": lambda: [state.value for state in State],
    "status": lambda: list(dict.fromkeys(STATUS.values())),
    "lifecycle": lambda: [machine.name for machine in Lifecycles()],
}


@dataclass(frozen=True)
class Option:
    flag: str
    about: str
    takes_value: bool
    values: list[str]


@dataclass(frozen=True)
class CompletionPlace:
    """What can be completed after a command path such as `/jobs/list`: words with descriptions, and options."""

    path: str
    words: dict[str, str]
    options: list[Option]

    @property
    def everything(self) -> dict[str, str]:
        return self.words | {option.flag: option.about for option in self.options}


def add_to(commands: Any) -> None:
    parser = command(
        commands,
        "completion",
        run,
        about="print a shell completion script",
        examples=[
            "source <(holdfast completion bash)            # in ~/.bashrc",
            'eval "$(holdfast completion zsh)"             # in ~/.zshrc, after compinit',
            "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
        ],
        database=False,
        json=False,
    )
    parser.add_argument("shell", choices=list(SCRIPTS), help="the shell to generate the script for")


def run(options: argparse.Namespace) -> int:
    print(SCRIPTS[options.shell](list(places(options.parser))), end="")
    return 0


def places(parser: argparse.ArgumentParser, path: str = "") -> Iterator[CompletionPlace]:
    """The parser and all its subparsers. argparse has no public way to read its actions."""
    words: dict[str, str] = {}
    options: list[Option] = []
    for action in parser._actions:
        if action.help is argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            words |= {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                yield from places(below, f"{path}/{name}")
        elif action.option_strings:
            about = (action.help or "").replace("\n", " ")
            values = _values(action)
            options += [
                Option(flag, about, action.nargs != 0, values) for flag in action.option_strings if len(flag) > 2
            ]
        else:
            words |= dict.fromkeys(_values(action), "")
    yield CompletionPlace(path, words, options)


def _values(action: argparse.Action) -> list[str]:
    return [f"{choice}" for choice in action.choices or _VALUES.get(action.dest, list)()]


def _bash(found: list[CompletionPlace]) -> str:
    lines = [
        "_holdfast() {",
        '    local place= word words= before="${COMP_WORDS[COMP_CWORD-1]}"',
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        f'        case "$place/$word" in {_paths(found)}) place="$place/$word" ;; esac',
        "    done",
        '    case "$place $before" in',
    ]
    for place, option in _taking_values(found):
        words = f"words={quote(' '.join(option.values))}" if option.values else "return"
        lines.append(f"        {quote(f'{place.path} {option.flag}')}) {words} ;;")
    lines.append('        *) case "$place" in')
    lines += [f"            {quote(place.path)}) words={quote(' '.join(place.everything))} ;;" for place in found]
    lines += [
        "        esac ;;",
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
        "}",
        "complete -o default -F _holdfast holdfast",
    ]
    return "\n".join(lines) + "\n"


def _zsh(found: list[CompletionPlace]) -> str:
    lines = [
        "#compdef holdfast",
        "_holdfast() {",
        '    local place= word before="${words[CURRENT-1]}"',
        "    local -a found",
        '    for word in "${(@)words[2,CURRENT-1]}"; do',
        f'        case "$place/$word" in ({_paths(found)}) place="$place/$word" ;; esac',
        "    done",
        '    case "$place $before" in',
    ]
    for place, option in _taking_values(found):
        words = f"found=({' '.join(option.values)})" if option.values else "_files; return"
        lines.append(f"        ({quote(f'{place.path} {option.flag}')}) {words} ;;")
    lines.append('        (*) case "$place" in')
    for place in found:
        described = (f"{word}:{about}" if about else word for word, about in place.everything.items())
        lines.append(f"            ({quote(place.path)}) found=({' '.join(map(quote, described))}) ;;")
    lines += [
        "        esac ;;",
        "    esac",
        "    _describe holdfast found",
        "}",
        'if [ "$funcstack[1]" = _holdfast ]; then _holdfast "$@"; else compdef _holdfast holdfast; fi',
    ]
    return "\n".join(lines) + "\n"


def _fish(found: list[CompletionPlace]) -> str:
    lines = [
        "function __holdfast_at",
        "    set -l place",
        "    set -l typed (commandline -opc)",
        "    set -e typed[1]",
        "    for word in $typed",
        '        switch "$place/$word"',
        f"            case {_paths(found).replace('|', ' ')}",
        '                set place "$place/$word"',
        "        end",
        "    end",
        '    test "$place" = "$argv[1]"',
        "end",
        "complete -c holdfast -f",
    ]
    for place in found:
        here = f"complete -c holdfast -n {_fish_quote(f'__holdfast_at {_fish_quote(place.path)}')}"
        lines += [f"{here} -a {word} -d {_fish_quote(about)}" for word, about in place.words.items()]
        for option in place.options:
            given = f" -a {_fish_quote(' '.join(option.values))}" if option.values else ""
            takes = f" -{'x' if given else 'r'}{given}" if option.takes_value else ""
            lines.append(f"{here} -l {option.flag.removeprefix('--')}{takes} -d {_fish_quote(option.about)}")
    return "\n".join(lines) + "\n"


def _paths(found: list[CompletionPlace]) -> str:
    return "|".join(place.path for place in found if place.path)


def _taking_values(found: list[CompletionPlace]) -> Iterator[tuple[CompletionPlace, Option]]:
    return ((place, option) for place in found for option in place.options if option.takes_value)


def _fish_quote(text: str) -> str:
    """fish has its own two escapes inside single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: dict[str, Callable[[list[CompletionPlace]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
