"""``hotloop completion SHELL``: what makes bash, zsh or fish complete verbs, flags and their values."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_HEAD: Final = "# Completion of hotloop for {shell}. {how}\n"
_HOW: Final = {
    "bash": 'Put into ~/.bashrc: eval "$(hotloop completion bash)"',
    "zsh": 'Put into ~/.zshrc, behind compinit: eval "$(hotloop completion zsh)"',
    "fish": "Write it once: hotloop completion fish > ~/.config/fish/completions/hotloop.fish",
}


@dataclass(frozen=True, kw_only=True)
class Flag:
    """An option: its spellings, one sentence, whether it takes a value, which, and whether that is a file."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    files: bool


@dataclass(frozen=True, kw_only=True)
class Verb:
    """``values``: what its first argument may be, where that is known; ``runs``, ``files``: it takes them."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    values: tuple[str, ...]
    runs: bool
    files: bool


#: What stands for files in a usage.
_FILES: Final = re.compile("FILE|DIR|PATH|FOLDER|RUN|COMMAND|PYTHON|OUT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop completion``."""
    parser.add_argument("shell", metavar="SHELL", choices=tuple(_HOW), help="bash, zsh or fish")


def main(options: argparse.Namespace) -> int:
    """Returns 0."""
    sys.stdout.write(render(options.shell))
    return 0


def render(shell: str) -> str:
    """The script for a shell."""
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return _HEAD.format(shell=shell, how=_HOW[shell]) + "".join(f"{line}\n" for line in made(list(verbs())))


def verbs() -> Iterator[Verb]:
    """Every verb with what its parser takes."""
    from hotloop.cli import main as cli
    from hotloop.findings import pages
    from hotloop.flow.export import KINDS
    from hotloop.remedy import catalogue

    remedies = tuple(one.id for one in catalogue.remedies())
    known = {"REMEDY": remedies, "PAGE": tuple(pages.titles()), "SPEC": tuple(f"{kind}=" for kind in KINDS)}
    known |= {"WORD": remedies, "INTERVENTION": remedies}
    for name, words in cli.VERBS.items():
        _, parser = cli._parser([name])
        flags: list[Flag] = []
        values: tuple[str, ...] = ()
        runs = files = False
        for action in parser._actions:
            meant = str(action.metavar)
            choices = tuple(map(str, action.choices or ())) or known.get(meant, ())
            path = not choices and bool(_FILES.search(meant))
            if action.option_strings:
                text = (action.help or "").replace("%%", "%").partition(";")[0]
                text = re.sub(r"(\(default|: ).*", "", text).strip()
                takes = action.nargs != 0
                names = tuple(action.option_strings)
                flags.append(Flag(names=names, help=text, takes_value=takes, choices=choices, files=path))
            else:
                runs, files, values = runs or meant.split()[0] == "RUN", files or path, values or choices
        yield Verb(name=name, help=words, flags=tuple(flags), values=values, runs=runs, files=files)


# -- bash ------------------------------------------------------------------------------------------------

_BASH: Final = """\
_hotloop() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= flags= values= i
  COMPREPLY=()
  [[ $cur == = || $prev == = ]] && return  # a value's second half: files
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -- ]] && return  # behind it stands a command: files
    [[ -z $verb && ${COMP_WORDS[i]} != -* ]] && verb=${COMP_WORDS[i]}
  done
  if [[ -z $verb ]]; then
    _hotloop_words "@VERBS@ --help --version"
    return
  fi
  case "$verb $prev" in
@VALUES@
  esac
  case "$verb" in
@FLAGS@
  esac
  if [[ $cur == -* ]]; then
    _hotloop_words "$flags"
  elif [[ $values == RUN ]]; then
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -G "${cur:-hotloop-runs/}*"))
  elif [[ $values != FILE ]]; then
    _hotloop_words "$values"
  fi
}
_hotloop_words() {
  compopt +o default 2>/dev/null  # no files beside them
  COMPREPLY=($(compgen -W "$1" -- "$cur"))
  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
}
complete -o default -F _hotloop hotloop"""


def _bash(all_: list[Verb]) -> list[str]:
    values, flags = [], []
    for verb in all_:
        names = " ".join(name for flag in verb.flags for name in flag.names)
        taken = "RUN" if verb.runs else " ".join(verb.values) or ("FILE" if verb.files else "")
        flags.append(f'    {verb.name}) flags="{names}" values="{taken}";;')
        for flag in verb.flags:
            if flag.takes_value:
                pattern = "|".join(f'"{verb.name} {name}"' for name in flag.names)
                reply = "" if flag.files else f'_hotloop_words "{" ".join(flag.choices)}"; '
                values.append(f"    {pattern}) {reply}return;;")
    filled = {
        "@VERBS@": " ".join(verb.name for verb in all_),
        "@VALUES@": "\n".join(values),
        "@FLAGS@": "\n".join(flags),
    }
    return [re.sub("@[A-Z]+@", lambda found: filled[found[0]], _BASH)]


# -- zsh -------------------------------------------------------------------------------------------------


def _zsh(all_: list[Verb]) -> list[str]:
    lines = ["_hotloop() {", "  local -a verbs", "  verbs=("]
    lines += [f"    {_quoted(verb.name + ':' + verb.help)}" for verb in all_]
    lines += ["  )", "  if (( CURRENT == 2 )); then", "    _describe verb verbs", "    return", "  fi"]
    lines += [
        "  if (( ${words[(I)--]} > 0 && ${words[(I)--]} < CURRENT )); then",
        "    _files",
        "    return",
        "  fi",
    ]
    lines += ["  words=(${words[2,-1]})", "  (( CURRENT-- ))", "  case ${words[1]} in"]
    for verb in all_:
        specs = [_zsh_flag(name, flag) for flag in verb.flags for name in flag.names]
        rest = f"({' '.join(verb.values)})" if verb.values else "_files" if verb.files else " "
        specs.append(_quoted(f"*:{'run' if verb.runs else 'file'}:{rest}"))
        lines.append(f"    {verb.name}) _arguments {' '.join(specs)};;")
    return [*lines, "  esac", "}", "compdef _hotloop hotloop"]


def _zsh_flag(name: str, flag: Flag) -> str:
    text = re.sub(r"[\[\]:]", " ", flag.help)
    given = f"({' '.join(flag.choices)})" if flag.choices else "_files" if flag.files else " "
    value = f":value:{given}" if flag.takes_value else ""
    return _quoted(f"*{name}[{text}]{value}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# -- fish ------------------------------------------------------------------------------------------------


def _fish(all_: list[Verb]) -> list[str]:
    lines = []
    for verb in all_:
        lines.append(
            f"complete -c hotloop -n __fish_use_subcommand -f -a {verb.name} -d {_in_fish(verb.help)}"
        )
        seen = f"-n '__fish_seen_subcommand_from {verb.name}; and not contains -- -- (commandline -opc)'"
        for flag in verb.flags:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names
            )
            value = (
                f" -x -a '{' '.join(flag.choices)}'"
                if flag.choices
                else (" -r" if flag.files else " -x")
                if flag.takes_value
                else ""
            )
            lines.append(f"complete -c hotloop {seen} {names}{value} -d {_in_fish(flag.help)}")
        if verb.values:
            lines.append(f"complete -c hotloop {seen} -f -a '{' '.join(verb.values)}'")
    return lines


def _in_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
