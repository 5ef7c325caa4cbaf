"""Words and text that every renderer shares: names of phases, places, cells of a terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from hotloop import language
from hotloop.foreign import clean as clean
from hotloop.phases import PHASES
from hotloop.probe.counting import WARM_UP
from hotloop.record.recording import Process

#: Phases as people read them.
PHASE_WORDS: Final = {
    **{name: name.replace("_", " ") for name in (*PHASES, "unaccounted")},
    "startup": "start-up",
}

#: Phase -> (letter of the plain bar, colour on a light page, colour on a dark page).
PHASE_MARKS: Final = {
    "startup": ("u", "#8a94a3", "#78839a"),
    "data_wait": ("D", "#e07b1a", "#f0913a"),
    "transfer": ("T", "#c9a400", "#dfbd2c"),
    "forward": ("F", "#3b78d8", "#5b95ee"),
    "backward": ("B", "#1f4fa3", "#3d6fc9"),
    "optimizer": ("O", "#2a9db0", "#41b7c9"),
    "sync": ("S", "#d6455d", "#ee6379"),
    "collective": ("C", "#7d55c7", "#9c78e6"),
    "evaluation": ("E", "#2f9e5b", "#45b873"),
    "checkpoint": ("K", "#8d6239", "#b0834f"),
    "logging": ("L", "#c2479c", "#dd68b8"),
    "epoch_gap": ("G", "#f2ab63", "#c97424"),
    "other": ("X", "#b98a94", "#a9737f"),
    "unaccounted": (".", "#d5d9de", "#454c57"),
}

#: Severity -> colour in a terminal.
SEVERITY_MARKS: Final = {"high": "#ff7b72", "medium": "#f0a040", "low": "#98a4b3", "info": "#98a4b3"}

#: Severity -> ANSI colour of a plain terminal.
SEVERITY_CODES: Final = {"high": "1;31", "medium": "33", "low": "36", "info": "2"}

#: What a program or a notebook observed of itself.
NO_COMMAND: Final = "a block of a running process"

#: Columns a text takes in a terminal; East Asian wide characters take two, combining ones none.
cells: Final = cell_len

#: Words that no shell takes apart; letters of every language, unlike those of ``shlex``.
_SAFE: Final = re.compile(r"[\w@%+=:,./-]+")


def command(words: Iterable[object]) -> str:
    """A command line that a shell would take as it was given."""
    return clean(" ".join(word if _SAFE.fullmatch(word) else shlex.quote(word) for word in map(str, words)))


def as_long(process: Process | None, words: Sequence[str]) -> str:
    """The command line for another run as long as this process's."""
    ended = process.last("exit") if process is not None else {}
    asked = max(1, (ended.get("steps") or 0) - WARM_UP)  # which it was given besides
    limit = f"--steps {asked} " if ended.get("reason") == "steps" else ""
    return f"{limit}-- {command(words) or 'COMMAND'}"


def place(where: Mapping[str, Any] | None, cwd: str | None = None, *, limit: int | None = None) -> str:
    """``file:line``, relative where the file lies under ``cwd``, shortened in front to ``limit`` cells."""
    if not where:
        return ""
    return path(str(where.get("file", "")), cwd, suffix=f":{where.get('line', 0)}", limit=limit)


def path(file: str, cwd: str | None = None, *, suffix: str = "", limit: int | None = None) -> str:
    """A path as short as it stays clear; its end is what tells files apart, so that is kept."""
    name = clean(file)
    if cwd and cwd != "/" and PurePosixPath(file).is_relative_to(cwd):
        name = clean(PurePosixPath(file).relative_to(cwd))
    text = name + suffix
    if limit is None or cells(text) <= limit:
        return text
    parts = name.split("/")
    while len(parts) > 1:
        parts.pop(0)
        shorter = "…/" + "/".join(parts) + suffix
        if cells(shorter) <= limit:
            return shorter
    return cut(parts[-1], limit - cells(suffix), front=True) + suffix


def from_here(file: str) -> str:
    """A path as it can be typed in the working directory, if that is still there."""
    try:
        return path(file, str(Path.cwd()))
    except OSError:  # the working directory is gone
        return clean(file)


def written(by: Mapping[str, Any], cwd: str | None = None, *, limit: int | None = None) -> str:
    """What decided a setting, with its place where it has one: ``train.py:14 sets ...``."""
    place = path(f"{by['file']}:{by['line']}", cwd, limit=limit) + " " if by["file"] else ""
    return place + clean(str(by["text"]))


def cut(text: str, limit: int, *, front: bool = False) -> str:
    """Text of at most ``limit`` cells, with an ellipsis where something is missing."""
    if cells(text) <= limit:
        return text
    if front:
        return "…" + set_cell_size(text[::-1], max(0, limit - 1)).rstrip()[::-1]
    return set_cell_size(text, max(0, limit - 1)).rstrip() + "…"


def wrap(text: str, width: int) -> list[str]:
    """Text in the language in use, in lines of at most ``width`` cells, broken between words if possible."""
    return language.lines(clean(text), width, whole=False)


def verdict(report: Mapping[str, Any]) -> str:
    """The verdict in the language in use, with what a finding says put in as a sentence of its own."""
    whole = str(report["verdict"])
    for one in report["findings"] if language.chosen() else ():
        at = whole.find(one["message"][1:])
        if at > 0 and one["message"][1:]:
            whole = whole[: at - 1] + language.said(one["message"]) + whole[at + len(one["message"]) - 1 :]
    return language.said(whole)


def paint(text: str, code: str, color: bool) -> str:
    """Text in an ANSI colour where one is wanted."""
    return f"\x1b[{code}m{text}\x1b[0m" if color and code else text


def hanging(mark: str, text: str, width: int) -> list[str]:
    """Text behind a mark in lines of at most ``width`` cells, the following ones indented under it."""
    return language.lines(clean(text), width, mark, whole=False)


def finding(one: Mapping[str, Any], cwd: str | None = None, *, width: int, color: bool = False) -> list[str]:
    """A finding in lines of at most ``width`` cells: severity, id and place, what it says, proof, advice."""
    severity, name = one["severity"], one["id"]
    at = place(one["where"], cwd, limit=max(8, width - len(severity) - len(name) - 4))
    lines = [f"{paint(severity, SEVERITY_CODES[severity], color)}  {name}  {at}".rstrip()]
    parts = (
        ("  ", one["message"]),
        *(("  - ", proof) for proof in one["evidence"][:4]),
        ("  > ", one["advice"]),
    )
    return lines + [line for mark, text in parts for line in hanging(mark, text, width)]


def value(item: Any) -> str:
    """A setting's value in one short text."""
    if item is None:
        return "–"
    if isinstance(item, bool):
        return "True" if item else "False"
    if isinstance(item, float):
        return f"{item:.6g}"
    if isinstance(item, list):
        return "[" + ", ".join(value(entry) for entry in item) + "]"
    if isinstance(item, dict):
        return "{" + ", ".join(f"{key}: {value(entry)}" for key, entry in item.items()) + "}"
    return clean(item)


# Why a run may hold no training step


def reasons(report: Mapping[str, Any]) -> list[str]:
    """Likely reasons, the most certain first; empty where steps were seen."""
    if report["num_steps"]:
        return []
    found = []
    if report["exit_code"] not in (0, None):
        found.append(f"The command ended with exit code {report['exit_code']} before a step was complete.")
    if not report["ranks"]:
        if failed := report.get("torch_failed"):
            return [*found, *(f"{words[0].upper()}{words[1:]}." for words in failed)]
        if report.get("without_torch"):
            return [*found, _WITHOUT_TORCH]
        return [*found, _NOT_SEEN] if may_have_trained(report["exit_code"], report["command"]) else found
    seconds = {phase["name"]: phase["seconds"] for phase in report["phases"]}
    ran = {name for name, one in seconds.items() if one > 0}
    if ran & {"forward", "evaluation"}:
        if not report["exit_code"] and not ran & {"backward", "optimizer"}:
            found.append("Forward passes were seen, but no optimizer step: inference or evaluation only.")
    elif report["warnings"] and "backward" not in ran:
        found.append("No model was seen to run, but not everything could be seen or stored: see below.")
    elif "backward" not in ran:
        found.append("torch was imported, but no model was run in the observed thread.")
    if report.get("checkpoint_read") and not report["exit_code"]:
        found.insert(0, _RESUMED)
    if may_have_trained(report["exit_code"], report["command"]):
        found.append("A training thread other than the first one, or a loop outside Python, cannot be seen.")
    return found


def may_have_trained(exit_code: int | None, command: Sequence[str]) -> bool:
    """Whether it may have trained unseen: it did not fail by itself, or something may have hidden it."""
    ended = exit_code in (0, None) or (exit_code or 0) > 128
    return ended or not _HIDING.isdisjoint(word.rpartition("/")[2] for word in command)


#: Words of a command behind which a Python may not be seen.
_HIDING = frozenset(["-E", "-I", "-S", "apptainer", "docker", "env", "podman", "singularity", "ssh", "sudo"])


_RESUMED = (
    "It read a checkpoint: where that is of a training that has ended, nothing is left to train. Move the "
    "checkpoint away, or train for longer."
)
#: What to do about what the verdict says.
_WITHOUT_TORCH = (
    "Run the command with the Python that has torch: activate its environment, or write its interpreter out."
)
_NOT_SEEN = (
    "Python under sudo, env -i, -I, -E, -S, with another PYTHONPATH (write PYTHONPATH=DIR:$PYTHONPATH) or in "
    "a container of its own cannot be looked into."
)
