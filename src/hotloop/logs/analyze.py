"""Files of any known kind, each read and judged, and all of them together."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hotloop import foreign
from hotloop.errors import UsageError
from hotloop.findings import SEVERITIES, Finding
from hotloop.logs import histories, trace
from hotloop.logs.histories import is_events
from hotloop.logs.log import Change, Log, Part, Point, Source
from hotloop.logs.rates import settle
from hotloop.logs.reading import BAD, head
from hotloop.logs.rules import resources, training
from hotloop.logs.text import Read, compiled, read_text
from hotloop.logs.words import changed_along, recognized, sections, verdict

_RULES: Final = (
    training.losses, training.average, training.decay, resources.data_wait, resources.cache, resources.memory,
    training.pauses, resources.device,
)  # fmt: skip
#: What reads a file of a kind; all else is text.
_READERS: Final = {
    "TensorBoard events": histories.read_events,
    "JSON lines": histories.read_jsonl,
    "JSON history": histories.read_json,
    "CSV history": histories.read_csv,
    "nvidia-smi csv": histories.read_csv,
    "nvidia-smi dmon": histories.read_table,
    "iostat -x": histories.read_table,
}
_MAX_POINTS: Final = 400
_MAX_FILES: Final = 256
_RANK: Final = re.compile(r"(?:rank|worker|gpu|proc|node)[_-]?(\d{1,9})")
#: Names looked at in a folder; a file given by itself may have any name.
_NAMES: Final = re.compile(
    r"tfevents|\.(?:log|out|err|txt|jsonl|json|csv|trace\.json|pt\.trace\.json)(?:\.(?:gz|bz2|xz))?$"
)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """All parts, and the findings of all, the costliest first."""

    parts: tuple[Part, ...]
    findings: tuple[Finding, ...]
    verdict: str

    def to_json(self) -> dict[str, Any]:
        """The document of ``hotloop analyze --json`` (schema 1)."""
        return {
            "schema": 1,
            "verdict": self.verdict,
            "sources": [
                {"bytes" if name == "num_bytes" else name: value for name, value in vars(part.source).items()}
                for part in self.parts
            ],
            "findings": [finding.to_json() for finding in self.findings],
            **{
                name: [
                    {"file": part.source.file, **asdict(one)}
                    for part in self.parts
                    for one in getattr(part, name)
                ]
                for name in ("throughput", "changes", "phases", "sections")
            },
        }


def analyze(
    paths: Sequence[Path],
    *,
    pattern: str | None = None,
    advance: Callable[[float, str], None] = lambda share, words: None,
) -> Analysis:
    """Read and judge files, and folders of them; a UsageError where there is nothing to read.

    ``advance`` is given the share of the files that are read, and the name of the next.
    """
    expression = compiled(pattern) if pattern else None
    files, unreadable = _files(paths)
    parts: list[Part] = list(unreadable)
    logs: list[Log] = []
    traces: list[Part] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # other people's numbers hold NaN, infinity and zero
        for number, path in enumerate(files):
            advance(number / len(files), path.name)
            try:
                if trace.is_trace(path):
                    traces.append(trace.analyze(path))
                    parts.append(traces[-1])
                    continue
                log, source = _read(path, expression)
            except (OSError, *BAD) as error:
                parts.append(_unreadable(path, getattr(error, "strerror", None) or str(error)))
                continue
            logs.append(log)
            parts.append(part_of(log, source))
    found = [finding for part in parts for finding in part.findings]
    findings = _sorted([*found, *training.uneven_ranks(logs, traces)])
    verdict = next((part.verdict for part in parts if part.verdict), "Nothing was recognized.")
    if findings and findings[0].severity != "info":
        verdict = findings[0].message
    return Analysis(parts=tuple(parts), findings=tuple(findings), verdict=verdict)


def part_of(log: Log, source: Source) -> Part:
    """Everything one log tells."""
    findings = _sorted(finding for rule in _RULES for finding in rule(log))
    return Part(
        source=source,
        verdict=verdict(log, findings),
        throughput=_points(log),
        changes=_changes(log),
        phases=(*log.phases, *log.stages),
        findings=tuple(findings),
        sections=sections(log),
    )


def _read(path: Path, pattern: re.Pattern[bytes] | None) -> tuple[Log, Source]:
    kind = "text" if pattern is not None else kind_of(path)
    if kind == "text":
        read = read_text(path, pattern)
        kind = _text_kind(path, read)
    else:
        read = _READERS[kind](path, Read())
    for stream in read.streams:
        settle(stream)
    rank = _RANK.search(path.name)
    log = Log(file=str(path), read=read, rank=int(rank[1]) if rank else None)
    found = {**vars(read.damage), "notes": tuple(read.damage.notes)}
    return log, Source(file=str(path), kind=kind, recognized=recognized(log), rank=log.rank, **found)


def _text_kind(path: Path, read: Read) -> str:
    if not read.damage.num_bytes:
        return "empty"
    rows, damaged = sum(stream.num_rows for stream in read.streams), read.damage.skipped
    if damaged > 0.3 * read.damage.lines and (not rows or damaged > max(2 * rows, 0.5 * read.damage.lines)):
        read.streams.clear()  # noise holds a number behind letters here and there
        return "binary"
    if not read.streams:
        return "text, nothing recognized"
    return f"{framework(head(path))} log"


def _files(paths: Sequence[Path]) -> tuple[list[Path], list[Part]]:
    files: list[Path] = []
    bad: list[Part] = []
    for path in paths:
        if path.is_dir():
            below = (Path(folder, n) for folder, _, names in foreign.walk(path) for n in names)
            inside = sorted(p for p in below if _NAMES.search(p.name) and p.is_file())[:_MAX_FILES]
            if not inside:
                bad.append(_unreadable(path, "a folder without logs, event files, histories or traces"))
            files += inside
        elif not path.exists():
            raise UsageError(
                f"{path}: no such file", hint="give logs, event files, traces, or folders of them"
            )
        elif not path.is_file():
            bad.append(_unreadable(path, "no regular file: write it to disk first"))
        else:
            files.append(path)
    return files, bad


def _unreadable(path: Path, why: str) -> Part:
    return Part(source=Source(file=str(path), kind="unreadable", lines=0, skipped=0, notes=(why,)))


def _points(log: Log) -> tuple[Point, ...]:
    """At most some hundred points: medians of equal stretches."""
    series = log.series
    if series is None:
        return ()
    parts = np.array_split(np.arange(len(series.rate)), min(len(series.rate), _MAX_POINTS))
    return tuple(
        Point(
            step=float(series.step[part[-1]]),
            rate=float(np.median(series.rate[part])),
            unit=series.unit,
            time_s=float(series.time_s[part[-1]]) if series.time_s is not None else None,
        )
        for part in parts
    )


def _changes(log: Log) -> tuple[Change, ...]:
    series = log.series
    if series is None:
        return ()
    return tuple(
        Change(
            step=float(series.step[at]),
            before=before,
            after=after,
            unit=series.unit,
            time_s=float(series.time_s[at]) if series.time_s is not None else None,
            line=int(series.line[at]),
            along=changed_along(log, series, at),
        )
        for at, before, after in zip(log.starts[1:], log.levels, log.levels[1:], strict=False)
    )


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.share, -f.cost_s_per_step))


# Which format a file has


#: Frameworks by what only their lines have; the first that fits names the log.
_FRAMEWORKS: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("mmengine", rb"(?:Epoch|Iter)\(train\) +\["),
        ("mmcv", rb" - INFO - (?:Epoch|Iter) \["),
        ("detectron2", rb"d2\.utils\.events"),
        ("Megatron-LM", rb"elapsed time per iteration \(ms\)"),
        ("torchtitan", rb"\[titan\]|\btps: [\d,]+ .*\bmfu:"),
        ("fairseq", rb"\btrain_inner\b"),
        ("timm", rb"Train: \d+ \[ *\d+/\d+ \( *\d+%\)\]"),
        ("Ultralytics", rb"GPU_mem +\w+_loss|gpu_mem +box"),
        ("Lightning", rb"\bv_num=|LOCAL_RANK: \d+ - CUDA_VISIBLE"),
        ("Hugging Face Trainer", rb"\{'(?:loss|train_runtime|eval_loss)': "),
        ("nanoGPT", rb"iter \d+: loss [\d.naif]+, time"),
        ("MetricLogger (torchvision)", rb"eta: .* time: [\d.]+ +data: [\d.]+"),
        ("torch examples", rb"Epoch: \[\d+\]\[ *\d+/\d+\]\s+Time"),
        ("Swin", rb"Train: \[\d+/\d+\]\[\d+/\d+\]"),
        ("Paddle", rb"reader_cost"),
        ("Keras", rb"\d+/\d+ (?:\[[=>.]+\]|\xe2\x94\x81+) - "),
        ("tqdm", rb"\|[^|\n]*\| [\d.]+[kMG]?/[\d.]+[kMG]? \[\d+:\d\d"),
        ("key=value", rb"\b\w+=[-+\d.]+[ ,;\t]+\w+=[-+\d.]"),
    )
)


def kind_of(path: Path) -> str:
    """``text`` or one of the kinds of ``analyze``."""
    if is_events(path):
        return "TensorBoard events"
    text = head(path)
    lines = [line for line in text.splitlines()[:50] if line.strip()]
    if not lines:
        return "text"
    first = lines[0].lstrip()
    if first.startswith((b"{", b"[")):
        return _json_kind(lines) or "text"
    return histories.table_kind(text) or _table_kind(lines)


def _json_kind(lines: list[bytes]) -> str | None:
    objects = sum(1 for line in lines if _is_object(line))
    if objects and objects >= 0.5 * len(lines):
        return "JSON lines"
    first = lines[0].strip()
    opening = first in (b"{", b"[", b"[{") or re.match(rb'\{\s*"[^"]+"\s*:', first) or first.startswith(b"[{")
    return "JSON history" if opening else None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _table_kind(lines: list[bytes]) -> str:
    header = lines[0]
    delimiter = max(b",", b";", b"\t", key=header.count)
    names = header.split(delimiter)
    if any(name.strip().startswith((b"utilization.gpu", b"power.draw", b"memory.used")) for name in names):
        return "nvidia-smi csv"
    if len(names) < 2 or any(_is_number(name) or re.search(rb"[:=]\s*\S", name) for name in names):
        return "text"
    rows = [line.split(delimiter) for line in lines[1:20]]
    fitting = [row for row in rows if len(row) == len(names) and sum(map(_is_cell, row)) >= 0.6 * len(names)]
    return "CSV history" if rows and len(fitting) >= 0.5 * len(rows) else "text"


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_cell(text: bytes) -> bool:
    return not text.strip() or _is_number(text.strip(b' "\r').replace(b",", b".", 1))


def framework(text: bytes) -> str:
    """The framework whose lines these are, ``text`` where none is known."""
    return next((name for name, pattern in _FRAMEWORKS if pattern.search(text)), "text")
