"""A state as text: a screen of lines in colour, and one plain line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from rich.text import Text

from hotloop import units
from hotloop.report import footprint, words
from hotloop.report.terminal import bar_columns
from hotloop.report.words import PHASE_MARKS, PHASE_WORDS, SEVERITY_MARKS

State = Mapping[str, Any]

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_SPARKS: Final = 16
_LABEL: Final = 9
_MOST_ROWS: Final = 12
_MOST_FINDINGS: Final = 3
_WARNING: Final = "#f0a040"
#: Status of a band -> how it is said, and in which colour.
EXPECTED: Final = {
    "failed": ("OUTSIDE", _WARNING),
    "passed": ("within", "#45b873"),
    "not-measured": ("not measured", "dim"),
}
_STATES: Final = {"running": "#45b873", "finished": "#5b95ee", "quiet": "#f0a040", "lost": "#f0a040"}


def render(state: State, width: int) -> list[Text]:
    """The screen in lines of at most ``width`` columns."""
    page: list[Text] = []
    blocks = (
        _head, _verdict, _alerts, _phases, _meters, _expected, _processes, _ranks, _fed, _findings, _not_seen
    )  # fmt: skip
    for block in blocks:
        lines = block(state, width)
        page += [Text(), *lines] if page and lines else lines
    for line in page:
        line.truncate(width, overflow="ellipsis")
    return page


def line(state: State, before: State | None = None) -> str:
    """A line for a log: when, how far, how fast; more lines with the verdict where ``before`` had another."""
    machine = state["machine"]
    parts = [
        time.strftime("%H:%M:%S", time.localtime(state["at_unix_s"])),
        state["state_words"],
        *_progress(state),
    ]
    parts += [f"{PHASE_WORDS[one['name']]} {units.share(one['share'])}" for one in _known_phases(state)[:2]]
    parts += [f"GPU{gpu['index']} {_gpu(gpu)[0]}" for gpu in state["gpus"][:2]]
    if machine["cpu_cores"] is not None:
        parts.append(f"{machine['cpu_cores']:.1f} of {machine['cpu_count']:g} cores busy")
    said = _held_back(state)
    new = words.hanging(" " * 10, said, 80) if before is None or said != _held_back(before) else []
    return "\n".join(["  ".join(filter(None, parts)), *filter(str.strip, new)])


def _held_back(state: State) -> str:
    early = "too early to tell what holds it back" if state["steps"]["count"] else ""
    return str(state["diagnosis_failed"] or (state["diagnosis"]["verdict"] if state["diagnosis"] else early))


def _head(state: State, width: int) -> list[Text]:
    color = "#ff7b72" if state["exit_code"] else _STATES.get(state["state"], "dim")
    right = Text.assemble(("● ", color), state["state_words"])
    name = words.cut(state["run"]["name"], max(8, width - right.cell_len - 2))
    room = " " * max(2, width - words.cells(name) - right.cell_len)
    return [
        Text.assemble((name, "bold"), room, right),
        Text(words.cut(state["run"]["command"], width), "dim"),
    ]


def _verdict(state: State, width: int) -> list[Text]:
    diagnosis = state["diagnosis"]
    if not diagnosis:
        looking = "Looking for what holds it back …" if state["steps"]["count"] else "No step was seen yet."
        return [Text(state["diagnosis_failed"] or looking, "bold")]
    lines = [Text(text, "bold") for text in words.wrap(diagnosis["verdict"], width)]
    told = [] if diagnosis["of_all"] else [f"of the last {diagnosis['num_steps']:,} steps"]
    if state["state"] != "finished":
        age_s = round(diagnosis["age_s"])
        ago = f"{age_s} s ago" if age_s < 60 else f"{units.duration(age_s)} ago"
        told.append(f"diagnosed {ago if age_s else 'just now'}")
    told += filter(None, [state["diagnosis_failed"]])
    lines += [Text(", ".join(told), "dim")] if told else []
    return lines + [Text(text) for text in words.wrap(" · ".join([*_progress(state), *_left(state)]), width)]


def _alerts(state: State, width: int) -> list[Text]:
    """What ``hotloop run`` warned of, the newest last."""
    found = [
        (time.strftime("%H:%M", time.localtime(one["unix_s"])), one["words"])
        for one in state.get("alerts", ())
    ]
    return [
        Text(text, _WARNING) for at, said in found[-3:] for text in words.hanging(f"! {at} ", said, width)
    ]


def _expected(state: State, width: int) -> list[Text]:
    """The bands that were asked for: what is outside, what is within, and what is not measured."""
    found = (state["diagnosis"] or {}).get("expected", ())
    said = [(EXPECTED[one["status"]][1], words.hanging(*expectation(one), width)) for one in found]
    return [Text(text, color) for color, lines in said for text in lines]


def expectation(one: Mapping[str, Any]) -> tuple[str, str]:
    """An item of what was expected: its mark and name, and what is said of it."""
    limit = f" (expected: {one['limit']})" if isinstance(one["limit"], str) else ""
    return f"{EXPECTED[one['status']][0]:<14}{one['name']:<17} ", f"{one['words']}{limit}"


def _progress(state: State) -> list[str]:
    count, speed = state["steps"]["count"], state["speed"]
    parts = [f"{'' if state['steps']['exact'] else 'about '}{count:,} step{'' if count == 1 else 's'}"]
    if speed["steps_per_s"]:
        parts.append(f"{units.rate(speed['steps_per_s'])} steps/s")
    if speed["samples_per_s"]:
        parts.append(f"{units.rate(speed['samples_per_s'])} samples/s")
    return parts


def _left(state: State) -> list[str]:
    left = state["remaining"]
    if not left:
        return []
    without = left["left_without_first_s"]
    said = f", {units.duration(without)} with finding 1 removed" if without is not None else ""
    return [f"{left['of']}: {units.share(left['done'])} done, {units.duration(left['left_s'])} left{said}"]


def _known_phases(state: State) -> list[dict[str, Any]]:
    found = state["diagnosis"]["phases"] if state["diagnosis"] else []
    return [one for one in found if one["name"] in PHASE_MARKS]


def _phases(state: State, width: int) -> list[Text]:
    found = _known_phases(state)
    if not found:
        return []
    bar = Text()
    for name, count in bar_columns([(one["name"], one["share"]) for one in found], width):
        bar.append(" " * count, f"on {PHASE_MARKS[name][2]}")
    keys = [
        Text.assemble(
            ("■ ", PHASE_MARKS[one["name"]][2]), f"{PHASE_WORDS[one['name']]} {units.share(one['share'])}"
        )
        for one in found
    ]
    lines, room = [Text()], width
    for key in keys:
        if lines[-1].cell_len + key.cell_len + 3 > room:
            lines.append(Text())
        lines[-1].append("   " if lines[-1].cell_len else "")
        lines[-1].append_text(key)
    return [bar, *lines]


def _meters(state: State, width: int) -> list[Text]:
    """A line each: name, how it went, what it is now."""
    machine, charts = state["machine"], {chart["id"]: chart for chart in state["charts"]}
    rows: list[tuple[str, Sequence[Any], str]] = []
    speed = state["speed"]
    if speed["steps_per_s"]:
        changed = [
            f"{units.rate(one['before'])} → {units.rate(one['after'])} at {units.duration(one['t_s'])}"
            for one in speed["changes"][-1:]
        ]
        rows.append(("steps/s", speed["values"], "  ".join([units.rate(speed["steps_per_s"]), *changed])))
    busy = charts.get("gpu", {"lines": []})["lines"]
    for number, gpu in enumerate(state["gpus"]):
        went = busy[number]["values"] if number < len(busy) else []
        rows.append((f"GPU {gpu['index']}", went, "  ".join(_gpu(gpu))))
    if machine["cpu_cores"] is not None:
        now = f"{machine['cpu_cores']:.1f} of {machine['cpu_count']:g} cores busy"
        rows.append(("CPU", _values(charts, "cpu", -1), now))
    used = sum(one["memory_bytes"] or 0.0 for one in state["processes"])
    memory = [f"{units.size(used)} in the run"] if used else []
    if machine["limit_bytes"]:
        held = _said(machine["cgroup_working_set_bytes"], units.size)
        memory.append(f"{held} of the limit of {units.size(machine['limit_bytes'])}")
    if machine["memory_available_bytes"]:
        memory.append(f"{units.size(machine['memory_available_bytes'])} available")
    if memory:
        rows.append(("memory", _values(charts, "machine-memory", 0), ", ".join(memory)))
    if machine["disk_read_bytes_per_s"] is not None:
        now = (
            f"{units.size(machine['disk_read_bytes_per_s'])}/s read, "
            f"{units.size(machine['disk_write_bytes_per_s'] or 0)}/s written, "
            f"busy {units.share(machine['disk_busy_ratio'] or 0.0)}"
        )
        rows.append(("disk", _values(charts, "disk", 0), now))
    queue = _values(charts, "workers", -1)
    if queue:
        rows.append(("queue", queue, f"{queue[-1] or 0:.1f} {charts['workers']['lines'][-1]['label']}"))
    return [
        Text.assemble((f"{name:<{_LABEL}}", "dim"), (f"{sparks(went):<{_SPARKS}}  ", "#5b95ee"), now)
        for name, went, now in rows
    ]


def _gpu(gpu: Mapping[str, Any]) -> list[str]:
    words_of = (
        ("util_ratio", None, units.share),
        ("memory_bytes", "memory_total_bytes", units.size),
        ("power_w", "power_limit_w", lambda value: f"{value:.0f} W"),
        ("temperature_c", None, lambda value: f"{value:.0f} °C"),
        ("sm_clock_mhz", None, lambda value: f"{value:.0f} MHz"),
    )
    found = []
    for name, of, say in words_of:
        if gpu[name] is not None:
            now, whole = say(gpu[name]), say(gpu[of]) if of and gpu[of] else ""
            same = whole.rpartition(" ")[2] == now.rpartition(" ")[2]
            found.append(f"{now.partition(' ')[0] if same else now}/{whole}" if whole else now)
    return found or ["–"]


def _values(charts: Mapping[str, Any], name: str, line: int) -> list[float | None]:
    lines = charts[name]["lines"] if name in charts else []
    return list(lines[line]["values"]) if lines else []


def sparks(values: Sequence[float | None]) -> str:
    """How a series went, in a few cells from its least, 0 or below, to its most."""
    known = np.array([np.nan if value is None else value for value in values], float)
    if not np.isfinite(known).any():
        return ""
    groups = np.array_split(known, min(_SPARKS, len(known)))
    means = [float(np.nanmean(one)) if np.isfinite(one).any() else float("nan") for one in groups]
    low, high = min(0.0, float(np.nanmin(means))), float(np.nanmax(means))
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(" " if value != value else _BLOCKS[round((value - low) * scale)] for value in means)


def _processes(state: State, width: int) -> list[Text]:
    found = state["processes"]
    rows = [
        [
            words.cut(one["what"], 24),
            str(one["pid"]),
            _said(one["cpu_cores"], "{:.2f}".format),
            _said(one["memory_bytes"], units.size),
            _said(one["threads"], "{:.0f}".format),
            _said(one["read_any_per_s"], units.size),
        ]
        for one in found[:_MOST_ROWS]
    ]
    more = [Text(f"and {len(found) - _MOST_ROWS} more", "dim")] if len(found) > _MOST_ROWS else []
    return _table(["process", "pid", "cores", "memory", "threads", "read/s"], rows, width) + more


def _ranks(state: State, width: int) -> list[Text]:
    found, slow = (state["diagnosis"] or {}).get("ranks", []), (state["diagnosis"] or {}).get("slowest_rank")
    rows = [
        [
            f"rank {one['rank']}{', holds up the others' if one['rank'] == slow else ''}",
            f"{one['num_steps']:,}",
            _said(one["s_per_step"], units.duration),
            _said(one["own_s_per_step"], units.duration),
        ]
        for one in found[:_MOST_ROWS]
    ]
    return _table(["rank", "steps", "per step", "own work"], rows if len(found) > 1 else [], width)


def _table(head: list[str], rows: list[list[str]], width: int) -> list[Text]:
    first, *others = footprint.table([head, *rows], width)
    return [Text(first, "dim"), *map(Text, others)] if rows else []


def _said(value: float | None, say: Callable[[float], str]) -> str:
    return "–" if value is None else say(value)


def _fed(state: State, width: int) -> list[Text]:
    """Loaders, caches, and what a cache of the dataset would hold."""
    diagnosis = state["diagnosis"] or {"loaders": [], "memory": {"fits": [], "advice": []}}
    lines = [f"{one['role']}: {one['dataset']} {one['settings']}" for one in diagnosis["loaders"]]
    lines += [
        f"{one['name']}: {units.share(one['hits'] / one['reads'])} hits of {one['reads']:,} reads"
        for one in state["caches"]
        if one["reads"]
    ]
    lines += diagnosis["memory"]["fits"][:1] + diagnosis["memory"]["advice"]
    return [Text(text, "dim") for one in lines for text in words.wrap(one, width)]


def _findings(state: State, width: int) -> list[Text]:
    found = state["diagnosis"]["findings"] if state["diagnosis"] else []
    lines: list[Text] = []
    for number, one in enumerate(found[:_MOST_FINDINGS], 1):
        cost = (
            f"  {units.duration(one['s_per_step'])}/step  {units.share(one['share'])}" if one["share"] else ""
        )
        head = Text.assemble((f"{number}  ", "dim"), (one["id"], "bold"), cost)
        head.append(f"  {one['severity']}", SEVERITY_MARKS.get(one["severity"], ""))
        lines += [Text(), head] if lines else [head]
        lines += [Text(text) for text in words.hanging("   ", one["message"], width)]
        lines += [Text(text, "#45b873") for text in words.hanging("   > ", one["advice"], width)]
    if len(found) > _MOST_FINDINGS:
        lines.append(Text(f"and {', '.join(one['id'] for one in found[_MOST_FINDINGS:])}", "dim"))
    return lines


def _not_seen(state: State, width: int) -> list[Text]:
    said = dict.fromkeys([*state["warnings"], *(state["diagnosis"] or {"warnings": []})["warnings"]])
    return [Text(text, _WARNING) for one in list(said)[:3] for text in words.hanging("! ", one, width)]
