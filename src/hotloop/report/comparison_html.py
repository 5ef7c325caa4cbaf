"""A comparison of runs as one HTML page: speed, parity, phases side by side, findings gone and new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup

from hotloop import __version__
from hotloop.compare.comparison import Comparison, Group, summary
from hotloop.compare.verdict import judge
from hotloop.compare.words import PARITY
from hotloop.findings import ENTRIES
from hotloop.phases import PHASES
from hotloop.report import html
from hotloop.units import duration

_LEAST: Final = 1e-9
#: A phase of less than this part of the step.
_SMALL: Final = 0.005


def render(groups: Sequence[Group], comparisons: Sequence[Comparison]) -> str:
    """The whole page; the first group is what the others are compared with."""
    facts = [summary(group) for group in groups]
    names = [group.label for group in groups]
    whole = max([sum(fact["phases"].values()) for fact in facts] + [_LEAST])
    body = html.environment().get_template("comparison.html.j2").render(
        cwd=None,
        verdicts=[_verdict(name, names[0], one) for name, one in zip(names[1:], comparisons, strict=True)],
        runs=[
            {**fact, "name": name, "bar": _bar(fact), "width": sum(fact["phases"].values()) / whole}
            for name, fact in zip(names, facts, strict=True)
        ],
        comparisons=[None, *comparisons],
        parities=["", *(_parity(groups[0], group) for group in groups[1:])],
        axis=_axis(comparisons),
        phases=list(_phases(facts, comparisons)),
        findings=_findings(facts),
        memory=[
            (name, [comparisons[0].memory[name][0], *(one.memory[name][1] for one in comparisons)])
            for name in ("host", "device")
        ],
        settings=[
            (name, [next(one.settings[name][0] for one in comparisons if name in one.settings),
                    *(one.settings[name][1] if name in one.settings else "=" for one in comparisons)])
            for name in dict.fromkeys(name for one in comparisons for name in one.settings)
        ],
        notes=list(dict.fromkeys(words for one in comparisons for words in one.words)),
        other_commands=len({group.lead.command for group in groups}) > 1,
    )  # fmt: skip
    title = " and ".join(names)
    return html.page(
        f"hotloop compare: {title[:120]}",
        Markup(body),
        f"hotloop {__version__} compare",
        {"wall_s": 0, "charts": []},
    )


def _verdict(name: str, base: str, one: Comparison) -> str:
    speed = one.speed
    if speed.ratio is None:
        return f"How fast {name} is beside {base} was not measured: {speed.words}"
    judged = one.judged(0.0)
    if judged == "cannot tell":
        return f"{name} against {base}: {speed.ratio:.2f} times the speed, which may be noise"
    return f"{name} is {speed.ratio:.2f} times as fast as {base}"


def _parity(base: Group, candidate: Group) -> str:
    a, b = base.lead, candidate.lead
    if not (a.trace.recorded and b.trace.recorded):
        return "not recorded (hotloop run --evidence records what is computed)"
    return PARITY[judge(a, b, effect="numeric").parity]


def _bar(fact: dict[str, Any]) -> list[tuple[str, float, str]]:
    total = sum(fact["phases"].values()) or 1.0
    return [
        (p, s / total, f"{duration(s)}/step") for p, s in fact["phases"].items() if s > 0 and p != "startup"
    ]


def _axis(comparisons: Sequence[Comparison]) -> dict[str, float] | None:
    """From where to where ratios and their intervals reach, 1 within."""
    known = [one.speed for one in comparisons if one.speed.ratio is not None]
    ends = [edge for one in known for edge in (one.ci95 or (one.ratio,)) if edge is not None]
    if not ends:
        return None
    low, high = min(1.0, *ends), max(1.0, *ends)
    room = 0.08 * (high - low) or 0.1
    return {"low": low - room, "width": high - low + 2 * room}


def _phases(facts: Sequence[dict[str, Any]], comparisons: Sequence[Comparison]) -> Any:
    """(phase, cells): seconds per step, of the others with the change; in parts of what is not next to 0."""
    least = _SMALL * sum(facts[0]["phases"].values())
    for phase in PHASES:
        values = [fact["phases"][phase] for fact in facts]
        if phase == "startup" or max(values) < 1e-6:
            continue
        cells = [duration(values[0])]
        for value, one in zip(values[1:], comparisons, strict=True):
            moved = next((m for m in one.phases if m.phase == phase), None)
            change = (
                f" ({value / values[0] - 1:+.0%})".replace("%", " %") if moved and values[0] > least else ""
            )
            cells.append(duration(value) + change + (" ?" if moved and not moved.beyond_noise else ""))
        yield phase, cells


def _findings(facts: Sequence[dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """(id, title, what each run has of it)."""
    found = []
    for name in dict.fromkeys(name for fact in facts for name in fact["findings"]):
        had = [
            "found" if name in fact["findings"] else "noted" if name in fact["noted"] else ""
            for fact in facts
        ]
        others = (("found" if had[0] else "new") if one == "found" else one or "gone" for one in had[1:])
        cells = [had[0] or "–", *(one if had[0] or one != "gone" else "–" for one in others)]
        found.append((name, ENTRIES[name].title if name in ENTRIES else "", cells))
    return found
