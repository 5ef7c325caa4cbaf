"""A planted case: a plain training script and what its first comment lines say is true about it.

::

    # truth: input/single-process | input/slow-sample    accepted as the first finding
    # healthy                                            no finding above info instead
    # bottleneck: input | device                         accepted bottleneck
    # line: scaler\\.transform                            where the first finding stands, or what it names
    # has: input/unused-fields                           one of these must be among the findings, info or not
    # not: input/too-few-workers                         none of these may be among them (above info)
    # launch: torchrun --nproc-per-node 2                instead of python
    # args: --num-workers 2                              arguments of the script
    # cores: 1                                           pinned to so many cores
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_HEADER = re.compile(r"^#\s*(truth|healthy|bottleneck|line|has|not|launch|args|cores)\b:?\s*(.*)$")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One planted case, as its header says."""

    path: Path
    healthy: bool = False
    truth: tuple[str, ...] = ()
    bottleneck: tuple[str, ...] = ()
    line: str = ""
    has: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    cores: int = 0

    @property
    def name(self) -> str:
        return self.path.stem

    def command(self, python: str = sys.executable) -> list[str]:
        """The plain training command, without anything that observes it."""
        if not self.launch:
            start = [python]
        elif self.launch[0] == "torchrun":
            start = [python, "-m", "torch.distributed.run", *self.launch[1:]]
        else:
            start = list(self.launch)
        return [*start, str(self.path), *self.args]

    def pinned(self, command: Sequence[str]) -> list[str]:
        """A command restricted to the case's cores, where the system can do that."""
        allowed = sorted(os.sched_getaffinity(0))
        if not self.cores or self.cores >= len(allowed) or not shutil.which("taskset"):
            return list(command)
        return ["taskset", "-c", ",".join(map(str, allowed[: self.cores])), *command]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A report held against a case. ``failures`` is empty where all of it is right."""

    first: str
    place: str
    bottleneck: str
    accounted_ratio: float
    above_info: tuple[str, ...]
    right_first: bool
    right_bottleneck: bool
    right_line: bool | None
    accounted: bool
    failures: tuple[str, ...] = field(default=())


def load(folder: Path, only: str = "") -> list[Case]:
    """All cases of a folder whose name matches the pattern, sorted by name."""
    found = [read(path) for path in sorted(folder.glob("*.py"))]
    return [case for case in found if re.search(only, case.name)]


def read(path: Path) -> Case:
    """A case from its file. Raises ValueError when its header says nothing."""
    said: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if match := _HEADER.match(line):
            said[match[1]] = match[2].strip()
    if ("healthy" in said) == ("truth" in said):
        raise ValueError(f"{path}: the header must say either '# truth: ...' or '# healthy'")
    return Case(
        path=path,
        healthy="healthy" in said,
        truth=_choices(said.get("truth", "")),
        bottleneck=_choices(said.get("bottleneck", "")),
        line=said.get("line", ""),
        has=_choices(said.get("has", "")),
        never=_choices(said.get("not", "")),
        launch=tuple(said.get("launch", "").split()),
        args=tuple(said.get("args", "").split()),
        cores=int(said.get("cores", 0)),
    )


def judge(case: Case, report: Mapping[str, Any]) -> Judgement:
    """Hold a report.json against what is true."""
    above = [finding for finding in report["findings"] if finding["severity"] != "info"]
    first = above[0] if above else None
    ids = tuple(finding["id"] for finding in above)
    right_first = first is None if case.healthy else first is not None and first["id"] in case.truth
    bottleneck = report["bottleneck"]
    right_bottleneck = not case.bottleneck or bottleneck in case.bottleneck
    right_line = _line_matches(case, first) if case.line and right_first and not case.healthy else None
    accounted = float(report.get("accounted_ratio", 0.0))
    failures = []
    if not right_first:
        failures.append(f"first finding {first['id'] if first else 'none'}")
    if not right_bottleneck:
        failures.append(f"bottleneck {bottleneck}")
    if right_line is False:
        failures.append(f"line {_place(first)}")
    if accounted < 0.99:
        failures.append(f"accounted {accounted:.3f}")
    every = {finding["id"] for finding in report["findings"]}
    if case.has and not every & set(case.has):
        failures.append(f"lacks {' or '.join(case.has)}")
    if wrong := [i for i in ids if i in case.never]:
        failures.append(f"says {', '.join(wrong)}")
    return Judgement(
        first=first["id"] if first else "none",
        place=_place(first),
        bottleneck=bottleneck,
        accounted_ratio=accounted,
        above_info=ids,
        right_first=right_first,
        right_bottleneck=right_bottleneck,
        right_line=right_line,
        accounted=accounted >= 0.99,
        failures=tuple(failures),
    )


def judge_nothing(why: str) -> Judgement:
    """What there is to say where no report came back."""
    return Judgement(
        first="none", place="", bottleneck="none", accounted_ratio=0.0, above_info=(), right_first=False,
        right_bottleneck=False, right_line=None, accounted=False, failures=(why,),
    )  # fmt: skip


def _choices(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|") if part.strip())


def _place(finding: Mapping[str, Any] | None) -> str:
    where = finding["where"] if finding else None
    return f"{Path(where['file']).name}:{where['line']}" if where else ""


def _line_matches(case: Case, finding: Mapping[str, Any] | None) -> bool:
    """Whether the finding stands at such a line or names one (a setting stands where the loader is built)."""
    if finding is None:
        return False
    said = [finding["message"], *finding["evidence"]]
    numbers = [int(n) for text in said for n in re.findall(rf"{re.escape(case.path.name)}:(\d+)", text)]
    where = finding["where"]
    if where and Path(where["file"]).name == case.path.name:
        numbers.append(where["line"])
    lines = case.path.read_text().splitlines()
    return any(re.search(case.line, lines[number - 1]) for number in numbers)
