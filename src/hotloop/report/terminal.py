"""The report in a terminal: what a tired person understands in ten seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from rich.cells import set_cell_size
from rich.text import Text

from hotloop import units
from hotloop.language import said
from hotloop.report import remaining, words
from hotloop.report.words import PHASE_MARKS, SEVERITY_MARKS, reasons

#: A text, or a text and its rich style.
Piece = str | Text | tuple[str, str]
Report = Mapping[str, Any]

_MAX_FINDINGS: Final = 5
_MAX_NOTED: Final = 2  # with their sentence; the rest by name
_MAX_SETTINGS: Final = 6
_MAX_WARNINGS: Final = 4
_MAX_PARTS: Final = 4
#: A verdict with one of these needs no word about findings.
_NOTHING: Final = ("worth fixing", "worth a trial", "nothing more can be told")
_UNSTEADY: Final = 1.2  # a mean step so many times as long as the steady ones is not theirs


def render(report: Report, *, width: int = 80, color: bool = False) -> str:
    """The report as lines of at most ``width`` columns; without ``color`` it holds no escape sequence."""
    page: list[Text] = []
    blocks = (_head, _bar, _findings, _settings, _memory, _not_seen, _next, _where)
    for block in blocks:
        lines = block(report, width)
        if lines and page:
            page.append(Text())
        page += lines
    for line in page:
        line.rstrip()
    return _colored(page, width) if color else "".join(f"{line.plain}\n" for line in page)


def _head(report: Report, width: int) -> list[Text]:
    command = words.command(report["command"]) or words.NO_COMMAND
    exit_code = report["exit_code"]
    end = said({None: "no exit code", 0: ""}.get(exit_code, f"exit code {exit_code}"))
    command = words.cut(command, width - 9 - (words.cells(end) + 2 if end else 0))
    first = Text.assemble(("hotloop  ", "bold"), (command, "dim"))
    if end:
        first = _justified(first, Text(end, "red"), width)
    patched = ", ".join((report.get("patch") or {}).get("met", ()))
    under = [Text(words.cut(f"patch in force: {patched}", width), "dim")] if patched else []
    if report.get("ended"):
        under += _hanging(
            ("ended after ", "dim"), f"{report['num_steps']:,} steps: {report['ended']}", width, "dim"
        )
    return [first, *under, Text(), *(Text(line, "bold") for line in words.wrap(words.verdict(report), width))]


def _bar(report: Report, width: int) -> list[Text]:
    if not report["num_steps"]:
        return [line for reason in reasons(report) for line in _hanging(("- ", "dim"), reason, width)]
    shares, left = _shares(report), report.get("remaining")
    bar = Text()
    for name, count in bar_columns(shares, width):
        bar.append(PHASE_MARKS[name][0] * count, f"#101010 on {PHASE_MARKS[name][2]}")
    return [
        *_wrapped(list(map(said, _numbers(report))), width),
        bar,
        *_legend(report, shares, width),
        *_startup(report, width),
        *_outside(report, width),
        *(Text(line) for line in (words.wrap(remaining.words(left), width) if left else ())),
    ]


def _numbers(report: Report) -> list[str]:
    throughput, step = report["throughput"], report["step_s"]
    count = f"{report['num_steps']:,} step{'' if report['num_steps'] == 1 else 's'}"
    if report["num_updates"] not in (0, report["num_steps"]):
        count += f" ({report['num_updates']:,} update{'' if report['num_updates'] == 1 else 's'})"
    parts = [count, f"{units.duration(step['mean'])}/step{_steady(report)}"]
    if throughput["samples_per_s"]:
        parts.append(f"{units.rate(throughput['samples_per_s'])} samples/s{_spread(throughput)}")
    elif throughput["steps_per_s"]:
        parts.append(f"{units.rate(throughput['steps_per_s'])} steps/s{_spread(throughput)}")
    parts.append(f"{units.duration(report['wall_s'])} in all")
    if report["num_trainings"] > 1:
        parts.append(f"the longest of {report['num_trainings']} trainings")
    if len(report["ranks"]) > 1:
        slow, nodes = report["slowest_rank"], report.get("nodes") or ()
        on = f" on {len(nodes)} machines" if len(nodes) > 1 else ""
        of = next((f" ({words.clean(node['name'])})" for node in nodes if slow in node["ranks"]), "")
        which = "even" if slow is None else f"rank {slow}{of} is slowest and shown here"
        parts.append(f"{len(report['ranks'])} ranks{on}, {which}")
    return parts


def _steady(report: Report) -> str:
    """Where the mean is no step that rates are about: one slow first batch weighs on a short run."""
    rate, mean = report["throughput"]["steps_per_s"], report["step_s"]["mean"]
    if not rate or mean * rate < _UNSTEADY:
        return ""
    return f" ({units.duration(1 / rate)} when steady)"


def _spread(throughput: Mapping[str, Any]) -> str:
    ci95, centre = throughput["ci95"], throughput["steps_per_s"]
    if not ci95 or not centre:
        return ""
    ratio = (ci95[1] - ci95[0]) / 2 / centre
    return f" ± {units.share(ratio)}" if ratio < 1 else " ± over 100 %"


def _shares(report: Report) -> list[tuple[str, float]]:
    """Shares of the bar, phases in order: of the training span, of all where start-up is the story."""
    key = "share" if report["bottleneck"] == "startup" else "span_share"
    shares = [
        (phase["name"], float(phase[key])) for phase in report["phases"] if phase["name"] != "unaccounted"
    ]
    shares = [(name, share) for name, share in shares if share > 0]
    missing = 1.0 - sum(share for _, share in shares)
    return [*shares, ("unaccounted", missing)] if missing >= 0.005 else shares


def bar_columns(shares: Sequence[tuple[str, float]], width: int) -> list[tuple[str, int]]:
    """Columns of a bar for each share; none for one that would not fill half a column."""
    so_far = [0.0, *accumulate(share for _, share in shares)]
    edges = [round(width * upto / (so_far[-1] or 1.0)) for upto in so_far]
    return [(name, b - a) for (name, _), (a, b) in zip(shares, pairwise(edges), strict=True) if b > a]


def _legend(report: Report, shares: Sequence[tuple[str, float]], width: int) -> list[Text]:
    whole, num_steps = report["bottleneck"] == "startup", max(1, report["num_steps"])
    seconds = {
        phase["name"]: phase["seconds"] / num_steps if whole else phase["s_per_step"]
        for phase in report["phases"]
    }
    of_s = report["wall_s" if whole else "span_s"]
    seconds["unaccounted"] = dict(shares).get("unaccounted", 0.0) * of_s / num_steps
    shown = dict(bar_columns(shares, width))
    entries = [
        _legend_entry(name, seconds.get(name, 0.0), share)
        for name, share in sorted(shares, key=lambda item: -item[1])
        if share >= 0.005 or name in shown
    ]
    columns = max(1, (width + 4) // (_ENTRY_CELLS + 4))
    rows = -(-len(entries) // columns)
    return [Text("    ").join(entries[row::rows]) for row in range(rows)]


_ENTRY_CELLS: Final = 34
#: Less of a run than this is not told where it lies outside the steps.
_OUTSIDE: Final = 0.05


def _legend_entry(name: str, seconds: float, share: float) -> Text:
    mark, _, colour = PHASE_MARKS[name]
    return Text.assemble(
        (f"{mark} ", f"bold {colour}"),
        f"{set_cell_size(said(words.PHASE_WORDS[name]), 12)}{units.duration(seconds):>14}",
        (f"{units.share(share):>6}", "bold" if share >= 0.1 else ""),
    )


def _startup(report: Report, width: int) -> list[Text]:
    startup = report["startup"]
    if startup["seconds"] <= 0:
        return []
    before = [part for part in startup["parts"] if not part["in_training"]]
    text = f"start-up {units.duration(startup['seconds'])}"
    text += ": " + ", ".join(map(_part, before[:_MAX_PARTS])) if before else ""
    text += "".join(
        f"; then {_part(part)}"
        for part in startup["parts"]
        if part["in_training"] and part["seconds"] > 0.1 * startup["seconds"]
    )
    return [Text(line, "dim") for line in words.wrap(text, width)]


def _outside(report: Report, width: int) -> list[Text]:
    """What took a visible part of the run before its first step or after its last one."""
    told = [
        f"{said(words.PHASE_WORDS[phase['name']])} {units.duration(seconds)}"
        for phase in report["phases"]
        if (seconds := phase["seconds"] - phase["span_seconds"]) >= _OUTSIDE * report["wall_s"]
        and phase["name"] not in ("startup", "other")
    ]
    return (
        [Text(line, "dim") for line in words.wrap(f"outside the steps: {', '.join(told)}", width)]
        if told
        else []
    )


def _part(part: Mapping[str, Any]) -> str:
    where = part.get("where")
    at = f" (most of it at {where['file'].rpartition('/')[2]}:{where['line']})" if where else ""
    return f"{said(part['name'])} {units.duration(part['seconds'])}{at}"


def _findings(report: Report, width: int) -> list[Text]:
    above = [finding for finding in report["findings"] if finding["severity"] != "info"]
    info = {f["id"]: f for f in reversed(report["findings"]) if f["severity"] == "info"}
    lines: list[Text] = []
    for number, finding in enumerate(above[:_MAX_FINDINGS], start=1):
        lines += ([Text()] if lines else []) + _finding(report, finding, number, width)
    if rest := above[_MAX_FINDINGS:]:
        named = ", ".join(f"{finding['id']} {units.share(finding['share'])}" for finding in rest)
        lines += [Text(), *_labelled(f"{len(rest)} more", named, width)]
    if not above and report["num_steps"] and not any(one in report["verdict"].lower() for one in _NOTHING):
        lines.append(Text(said("No single cause worth fixing was found.")))
    if info:
        lines += [Text()] if lines else []
        names = list(reversed(info))
        for name in names[:_MAX_NOTED]:
            lines += _labelled("noted", f"{name}: {said(info[name]['message'])}", width)
        if names[_MAX_NOTED:]:
            lines += _labelled("also noted", ", ".join(names[_MAX_NOTED:]), width)
    return lines


def _finding(report: Report, finding: Mapping[str, Any], number: int, width: int) -> list[Text]:
    colour = SEVERITY_MARKS[finding["severity"]]
    head = Text.assemble((f"{number}  ", f"bold {colour}"), (words.clean(finding["id"]), "bold"))
    if finding["rank"] is not None and len(report["ranks"]) > 1:
        head.append(f"  rank {finding['rank']}", "dim")
    cost = _cost(finding, width - head.cell_len - 1)
    priced = _justified(head, Text(cost, f"bold {colour}"), width)
    lines = [priced] if priced.cell_len <= width else [head, Text(f"   {cost}", f"bold {colour}")]
    if where := finding["where"]:
        function = said(f" in {words.clean(where['function'])}") if where.get("function") else ""
        whole = words.cells(words.place(where, report.get("cwd")))
        function = words.cut(function, max(width // 3, width - 3 - whole))
        at = words.place(where, report.get("cwd"), limit=width - 3 - words.cells(function))
        lines.append(Text.assemble("   ", (at, "cyan"), (function, "dim")))
    if finding["message"][1:] not in report["verdict"]:  # else it is what the page begins with
        lines += _hanging("   ", finding["message"], width)
    if same := finding["same_seconds_as"]:
        text = f"Some of the same seconds as {same}: what they save does not add up."
        lines += _hanging("   ", text, width)
    lines += _hanging(("   > ", f"bold {colour}"), finding["advice"], width)
    if (gain := finding["gain"]) and gain["measured"]:
        low, high = gain["ci95"]
        text = f"measured without it: {gain['ratio']:.2f} times as fast (95 %: {low:.2f} to {high:.2f})"
        lines += _hanging("   ", text, width, "green")
    return lines


def _cost(finding: Mapping[str, Any], room: int) -> str:
    """What it costs; its interval where there is room."""
    if finding["cost_s_per_step"] <= 0:
        return said(str(finding["severity"]))
    cost, edges = units.duration(finding["cost_s_per_step"]), finding["cost_ci95"]
    spread = f" ± {units.duration((edges[1] - edges[0]) / 2)}" if edges else ""
    rest = f"/step  {units.share(finding['share'])}  {said(finding['severity'])}"
    whole = cost + spread + rest
    return whole if len(whole) <= room else cost + rest


def _settings(report: Report, width: int) -> list[Text]:
    differing = [setting for setting in report["settings"] if setting["differs"]]
    lines: list[Text] = []
    for setting in differing[:_MAX_SETTINGS]:
        where = (
            words.path(str(setting["where"]), report.get("cwd"), limit=width // 2) if setting["where"] else ""
        )
        in_effect, configured = words.value(setting["in_effect"]), words.value(setting["configured"])
        text = f"{setting['name']} is {in_effect}, configured {configured}" + (f" ({where})" if where else "")
        if setting["by"]:
            text += f"; {words.written(setting['by'], report.get('cwd'), limit=width // 2)}"
        lines += _hanging("   ", text, width)
    if len(differing) > _MAX_SETTINGS:
        lines.append(Text(f"   and {len(differing) - _MAX_SETTINGS} more", "dim"))
    return [Text(said("in effect, against the configuration"), "bold"), *lines] if lines else []


def _memory(report: Report, width: int) -> list[Text]:
    """What the account of memory advises; where memory goes is said by ``hotloop memory``."""
    lines: list[Text] = []
    for text in report["memory"].get("advice") or ():
        lines += _hanging("   ", text, width)
    return [Text(said("memory"), "bold"), *lines] if lines else []


def _not_seen(report: Report, width: int) -> list[Text]:
    lines: list[Text] = []
    for text in report["warnings"][:_MAX_WARNINGS]:
        lines += _hanging(("!  ", "yellow"), text, width)
    if len(report["warnings"]) > _MAX_WARNINGS:
        lines.append(Text(f"!  and {len(report['warnings']) - _MAX_WARNINGS} more", "yellow"))
    return lines


def _next(report: Report, width: int) -> list[Text]:
    """Commands in one piece, however long: they are there to be copied."""
    wide = max((words.cells(one["command"]) for one in report["next"]), default=0)
    lines: list[Text] = []
    for one in report["next"]:
        note = f"  {' ' * (wide - words.cells(one['command']))}# {said(one['words'])}"
        fits = 6 + wide + words.cells(note) <= width
        head = "      " if lines else f"{said('next')}: "
        lines.append(Text.assemble((head, "dim"), (one["command"], "bold"), (note if fits else "", "dim")))
    return lines


def _where(report: Report, width: int) -> list[Text]:
    folder = report.get("run_folder")
    if not folder:
        return []
    file = words.from_here(f"{folder}/report.html")
    # In one piece, however long: it is there to be copied.
    return [Text.assemble((f"{said('report')}: ", "dim"), file)]


def _labelled(label: str, text: str, width: int) -> list[Text]:
    return _hanging((f"{said(label)}: ", "dim"), text, width, "dim")


def _wrapped(parts: Sequence[str], width: int) -> list[Text]:
    """Parts joined by dots, broken between parts."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        if words.cells(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return [Text(line) for line in lines]


def _hanging(mark: Piece, text: str, width: int, style: str = "") -> list[Text]:
    """Text behind ``mark``, following lines indented under it."""
    head = Text.assemble(mark)
    wrapped = words.wrap(text, max(20, width - head.cell_len))
    return [
        Text.assemble(" " * head.cell_len if i else head, (line, style)) for i, line in enumerate(wrapped)
    ]


def _justified(left: Text, right: Text, width: int) -> Text:
    return Text.assemble(left, " " * max(1, width - left.cell_len - right.cell_len), right)


def _colored(page: Sequence[Text], width: int) -> str:
    import io

    from rich.console import Console

    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, color_system="256", width=max(width, 400), legacy_windows=False
    )
    for line in page:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return stream.getvalue()
