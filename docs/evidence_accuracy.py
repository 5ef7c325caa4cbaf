"""The section «Accuracy» of docs/evidence.md: verdicts that were held against a truth."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from result_files import Result, ResultError, block, every, field, newest, share

OWN = "python benchmarks/accuracy/run.py --out FILE"
PEERS = "python benchmarks/accuracy/peers.py --out FILE"
PUBLIC = "python benchmarks/public/run.py FOLDER --keep RUNS"
FRAMEWORKS = "hotloop run -- python benchmarks/frameworks/SCRIPT"
GPU = "make gpu"

TOOLS = {
    "traceml": ("TraceML 0.5.0", "the unmodified script"),
    "traceml+": ("TraceML 0.5.0", "a step marked in the source"),
    "gpuprof": ("gpuprof 0.7.1", "the script inside its context manager"),
    "alloc": ("alloc 0.0.16", "the unmodified script, which it reads and does not run"),
    "datapath": ("datapath-doctor 0.2.1", "the script with its profiler around every DataLoader"),
}
#: First cells of the heads of tables that hold a run a row; the column that judges it; what is no first run.
_SCRIPTS, _JUDGED = {"script", "framework", "library", "case"}, {"judged", "verdict", "right?", "right"}
_NO_RUN = re.compile(r"`(?:hotloop )?(?:fix|tune|verify)\b|, again$|\(seen before\)")
_HIGH = "wrong at high"
#: A verdict that is called right, and one in which something had to be mended or was missing.
_RIGHT = re.compile(r"(?:right|yes)\b", re.I)
_COMMAND = re.compile(r"`(?:python benchmarks/|hotloop run )[^`]*`")
_BUT = re.compile(r"\b(?:before|wrong|mended|useless|missing|incomplete)\b", re.I)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Runs of a result, and how many of them were right at once and as judged last."""

    total: int
    first: int
    last: int | None  # None where the file does not say, as below
    wrong_at_high: int | None


def section() -> list[str]:
    """The whole section."""
    return ["## Accuracy", "", *own(), *peers(), *public(), *frameworks(), *gpu()]


def files() -> list[Result]:
    """The newest run of the planted scripts, alone on its cores and beside busy processes."""
    newest_of: dict[bool, Result] = {}
    for result in every("accuracy-cpu-*.json", OWN):
        newest_of[busy(result) > 0] = result
    return [newest_of[one] for one in sorted(newest_of)]


def busy(result: Result) -> int:
    """How many processes computed beside the scripts."""
    return int(result.data.get("busy_beside", 0))


def own() -> list[str]:
    """Scripts of our own with one planted cause, or none."""
    lines = ["### Planted scripts", ""]
    for result in files():
        beside = f" --busy {busy(result)}" if busy(result) else ""
        cases = field(result, "cases")
        planted = [case for case in cases if not case["healthy"]]
        lines += block(
            (result, result.data.get("command") or OWN.replace(" --out", f"{beside} --out")),
            ("scripts with one planted cause or none" + (", busy cores" if beside else ""), "right", "95 %"),
            [
                f"first finding | {share(*_count(planted, 'right_first'))}",
                f"bottleneck | {share(*_count(cases, 'right_bottleneck'))}",
                f"named line | {share(*_count(cases, 'right_line'))}",
                f"healthy, nothing above info | {share(*healthy(cases))}",
                f"99 % of the wall time accounted for | {share(*_count(cases, 'accounted'))}",
            ],
        )
    return lines


def _count(cases: Sequence[Mapping[str, Any]], key: str) -> tuple[int, int]:
    known = [case[key] for case in cases if case[key] is not None]
    return sum(known), len(known)


def healthy(cases: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Healthy scripts with nothing above info, and all of them."""
    quiet = [not case["above_info"] for case in cases if case["healthy"]]
    return sum(quiet), len(quiet)


def peers() -> list[str]:
    """Other tools on the same scripts; hotloop's cause, theirs the family."""
    results, ours = peer_files(), files()[0]
    rows = []
    for tool, result in results.items():
        name, given = TOOLS[tool]
        family = [row for row in field(result, "rows") if row["tool"] == tool]
        alone = [row["right"] for row in family if row["healthy"]]
        wrongly = sum(row["wrongly_input"] for row in family)
        rows.append(
            f"{name} | {given} | family: {share(*family_right(result, tool))} | "
            f"{sum(alone)} of {len(alone)} | {wrongly} | {result.link}, {result.date}"
        )
    for result in dict.fromkeys(results.values()):
        same = same_scripts(ours, result)
        planted = [case for case in same if not case["healthy"]]
        called = sum(case["bottleneck"] == "input" and not case["right_bottleneck"] for case in planted)
        alone_ours = healthy(same)
        rows.append(
            f"hotloop | the unmodified script | cause: {share(*_count(planted, 'right_first'))} | "
            f"{alone_ours[0]} of {alone_ours[1]} | {called} | {ours.link}, {ours.date}"
        )
    head = ("tool", "what it got", "right", "95 %", "healthy left alone", "wrongly input-bound", "file")
    told = dict.fromkeys(
        f"{result.link} · {result.date} · {result.machine} · `{PEERS}`" for result in results.values()
    )
    lines = [line for one in told for line in (one, "")]
    return ["### Other tools on the same scripts", "", *lines, *block(None, head, rows)]


def peer_files() -> dict[str, Result]:
    """Each other tool with the newest result that has it."""
    found = every("peers-cpu-*.json", PEERS)
    has = [(result, {row["tool"] for row in field(result, "rows")}) for result in found]
    newest_of = {tool: [result for result, tools in has if tool in tools] for tool in TOOLS}
    return {tool: results[-1] for tool, results in newest_of.items() if results}


def family_right(result: Result, tool: str) -> tuple[int, int]:
    """Planted scripts of which another tool named the family, and all of them."""
    rows = [row for row in field(result, "rows") if row["tool"] == tool and not row["healthy"]]
    return sum(row["right"] for row in rows), len(rows)


def same_scripts(ours: Result, theirs: Result) -> list[Mapping[str, Any]]:
    """Our cases that the other tools were given too."""
    names = {row["case"] for row in field(theirs, "rows")}
    return [case for case in field(ours, "cases") if case["case"] in names]


def judged(result: Result) -> Judged:
    """What the columns of a Markdown result say that judge its rows.

    A column «judged» says whether the answer was right. The older ones («right?») say of one answer whether
    it is right, and what was mended for it.
    """
    found: Counter[str] = Counter()
    plain = again = False
    for head, rows in result.tables():
        columns = [at for at, name in enumerate(head) if name in _JUDGED]
        if head[0] not in _SCRIPTS or not columns:
            continue
        plain, again = head[columns[0]] == "judged", len(columns) > 1
        for row in rows:
            if not row[0] or any(_NO_RUN.search(cell) for cell in row[:2]):
                continue
            cell, last = row[columns[0]], row[columns[-1]]
            found["total"] += 1
            found["first"] += bool(_RIGHT.match(cell) and (plain or not _BUT.search(cell)))
            found["last"] += bool(_RIGHT.match(last) or "mended" in last)
            found["high"] += "wrong, high" in cell or dict(zip(head, row, strict=False)).get(_HIGH) == "yes"
    if not found["last"]:
        raise ResultError(f"{result.path}: no row of a run is judged right or wrong; see {__file__}")
    return Judged(
        total=found["total"],
        first=found["first"],
        last=None if plain and not again else found["last"],
        wrong_at_high=found["high"] if plain else None,
    )


def _judged_rows(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        one, by = judged(result), _COMMAND.search(result.text)
        high = "-" if one.wrong_at_high is None else one.wrong_at_high
        last = "-" if one.last is None else f"{one.last} of {one.total}"
        yield (
            f"{result.link} | {result.date} | {result.machine} | {share(one.first, one.total)} | {high} | "
            f"{last} | {by[0] if by else 'as its rows say'}"
        )


def public_files() -> list[Result]:
    """Each set of public scripts."""
    return every("public-scripts-*.md", PUBLIC)


_HEAD = (
    "file", "date", "machine", "right at first contact", "95 %", _HIGH, "right as judged last",
    "command",
)  # fmt: skip


def public() -> list[str]:
    """Scripts that others published."""
    rows = list(_judged_rows(public_files()))
    words = [
        "The file of 2026-11-22 judges after mending. Its rows count as right at first contact where nothing",
        "was mended or missing. Scripts that hotloop had seen before are left out of all.",
        "",
    ]
    return ["### Public scripts", "", *words, *block(None, _HEAD, rows)]


def frameworks() -> list[str]:
    """Scripts of our own on top of frameworks."""
    rows = list(_judged_rows(every("frameworks-*.md", FRAMEWORKS)))
    return ["### Frameworks", "", *block(None, _HEAD, rows)]


def gpu_file() -> Result:
    """The newest run on a GPU."""
    return newest("gpu-*.md", GPU)


def gpu() -> list[str]:
    """Planted scripts on a GPU."""
    result = gpu_file()
    cases = next((rows for head, rows in result.tables() if head[0] == "case"), None)
    if cases is None:
        raise ResultError(f"{result.path}: no table of cases; run: {GPU}")
    bottleneck = sum(row[1] == "device" for row in cases)
    one = judged(result)
    rows = [
        f"first finding | {share(one.first, one.total)}",
        f"bottleneck | {share(bottleneck, len(cases))}",
    ]
    return [
        "### On a GPU",
        "",
        *block((result, GPU), ("planted scripts, first contact", "right", "95 %"), rows),
    ]
