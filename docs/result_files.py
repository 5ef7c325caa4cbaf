"""Result files of ``benchmarks/results``: found by name, with date and machine; a clear error without one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from hotloop.stats import NORMAL95

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
#: How a Markdown result names the machine that it was made on.
_MACHINE = re.compile(r"NVIDIA [^,(]+|two (?:crowded )?cores[^,.;:(]*", re.I)


class ResultError(Exception):
    """A result file is missing, or holds another thing than its benchmark writes."""


@dataclass(frozen=True)
class Result:
    """One committed result file."""

    path: Path

    @cached_property
    def text(self) -> str:
        """What the file holds."""
        return self.path.read_text()

    @cached_property
    def data(self) -> Any:
        """What the JSON holds."""
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as error:
            raise ResultError(f"{self.path}:{error.lineno}: no JSON: {error.msg}; measure it again") from None

    @property
    def date(self) -> str:
        """The date in its name."""
        found = _DATE.search(self.path.stem)
        if found is None:
            raise ResultError(f"{self.path}: no date in the name; call it NAME-DEVICE-YYYY-MM-DD")
        return found[0]

    @property
    def link(self) -> str:
        """A link from docs/."""
        return f"[{self.path.name}](../benchmarks/results/{self.path.name})"

    @property
    def machine(self) -> str:
        """The machine in the file's own words."""
        if self.path.suffix == ".md":
            found = _MACHINE.search(self.text)
            return " ".join(found[0].split()) if found else "machine not in the file"
        known = self.data[0] if isinstance(self.data, list) else self.data
        machine = known.get("machine") or known.get("when") or known
        if isinstance(machine, str):
            return machine.removeprefix(f"{self.date}, ")
        words = [f"{machine['cores']} cores"] if machine.get("cores") else []
        words += [str(machine["cpu"])] if machine.get("cpu") else []
        words += [f"{name} {machine[name]}" for name in ("python", "torch") if machine.get(name)]
        if load := machine.get("load"):
            words.append(f"load {load[0] if isinstance(load, list) else load:.1f}")
        return ", ".join(words) or "machine not in the file"

    def tables(self) -> list[tuple[list[str], list[list[str]]]]:
        """The tables of a Markdown result: each its heading and its rows."""
        blocks = re.findall(r"(?:^\|.*\n?){3,}", self.text, flags=re.M)
        cells = [
            [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
            for block in blocks
        ]
        return [(head, rows) for head, _, *rows in cells]


def every(pattern: str, command: str) -> list[Result]:
    """All results of a name, the oldest first; an error says which command makes one."""
    found = sorted(RESULTS.glob(pattern), key=lambda path: path.stem)
    if not found:
        raise ResultError(f"{RESULTS / pattern}: no such result; make it by: {command}")
    return [Result(path) for path in found]


def newest(pattern: str, command: str) -> Result:
    """The last of ``every``."""
    return max(every(pattern, command), key=lambda result: result.date)


def field(result: Result, *keys: str | int) -> Any:
    """What stands under the keys of a JSON result."""
    value = result.data
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise ResultError(f"{result.path}: no {' / '.join(map(str, keys))}; measure it again") from None
    return value


def share_interval(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    part, square = right / total, NORMAL95**2
    middle = (part + square / (2 * total)) / (1 + square / total)
    half = NORMAL95 * sqrt(part * (1 - part) / total + square / (4 * total**2)) / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(right: int, total: int) -> str:
    """``79 of 82 | 96 % (90 - 99)``: two cells."""
    low, high = share_interval(right, total)
    return f"{right} of {total} | {right / total * 100:.0f} % ({low * 100:.0f} - {high * 100:.0f})"


def spread(values: list[float], form: str = "{:.0%}") -> str:
    """``median | middle half | least .. most``: three cells."""
    low, _, high = quantiles(values, n=4)
    words = [form.format(value).replace("%", " %") for value in (low, high, min(values), max(values))]
    middle = form.format(median(values)).replace("%", " %")
    return f"{middle} | {words[0]} .. {words[1]} | {words[2]} .. {words[3]}"


def block(origin: tuple[Result, str] | None, head: Sequence[str], rows: Iterable[str]) -> list[str]:
    """A table; above it the file that it is from, with the command that made it, unless its rows say so."""
    lines = []
    if origin is not None:
        result, command = origin
        lines = [f"{result.link} · {result.date} · {result.machine} · `{command}`", ""]
    return [*lines, f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {row} |" for row in rows), ""]
