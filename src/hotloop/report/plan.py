"""``hotloop plan`` in a terminal: the plans side by side, what each changes, and what it may cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop import units
from hotloop.report import batch, words
from hotloop.report.footprint import Section, advice, page, table


def render(document: Mapping[str, Any], *, width: int = 80) -> str:
    """The dictionary of ``tune.plans.document`` as text."""
    command = words.command(document["command"])
    head = ["hotloop plan  " + words.cut(command, width - 14), *_machine(document, width)]
    said: dict[str, str] = {}
    return page(
        [
            head,
            _table(document, width),
            *(_details(plan, said, document["cwd"], width) for plan in document["plans"]),
            batch.choices(document.get("choices", ()), width),
            batch.chosen(document["batch"], width),
            advice([text for text in document["doubts"] if text not in said], width),
        ]
    )


def _machine(document: Mapping[str, Any], width: int) -> Section:
    machine, now = document["machine"], document["now"]
    ranks = f", {machine['ranks']} ranks" if machine["ranks"] > 1 else ""
    step = f", a step of {units.duration(machine['step_s'])}" if machine["step_s"] else ""
    what = "another machine" if machine["other"] else "the machine of the run"
    measured = f"the run took {units.duration(now['measured_s_per_step'])} a step"
    measured += f"; the model of it gives {units.duration(now['s_per_step'])}" if not machine["other"] else ""
    lines = f"{what}: {machine['cores']:g} cores, {units.size(machine['memory_bytes'])}{ranks}{step}"
    return [*words.wrap(lines, width), *words.wrap(measured, width)]


def _table(document: Mapping[str, Any], width: int) -> Section:
    per_s = bool(document["now"]["samples_per_s"])
    rows = [["plan", "workers", "ahead", "samples/s" if per_s else "a step", "gain", "", "memory", "effect"]]
    there = "now, there" if document["machine"]["other"] else "now"
    for plan in ({**document["now"], "name": there, "gain": None, "effect": ""}, *document["plans"]):
        ratio = plan["gain"]
        low, high = ratio["ci95"] if ratio else (0.0, 0.0)
        kept = ratio is not None and not plan["settings"] and not plan["remedies"] and not plan["cache_bytes"]
        ahead = plan["prefetch_factor"] if plan["num_workers"] else None
        speed = units.rate(plan["samples_per_s"]) if per_s else units.duration(plan["s_per_step"])
        mark = "?" if ratio and not kept and not plan["recommended"] else ""
        rows.append(
            [
                plan["name"],
                str(plan["num_workers"]),
                "-" if ahead is None else str(ahead),
                speed,
                "-" if ratio is None or kept else f"{_ratio(ratio['ratio'])}x{mark}",
                "" if ratio is None or kept else f"{_ratio(low)} - {_ratio(high)}",
                units.size(plan["host_bytes"]),
                "as now" if kept else plan["effect"],
            ]
        )
    return table(rows, width, left=(0, 5, 7))


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.3g}"


def _details(plan: Mapping[str, Any], said: dict[str, str], cwd: str | None, width: int) -> Section:
    """What a plan changes; what an earlier one changes as well is not said again (``said``: text -> plan)."""
    indent = 14
    lines = words.hanging(plan["name"].ljust(indent), plan["why"], width)
    if plan["command"] and (same := said.setdefault(plan["command"], plan["name"])) != plan["name"]:
        return [*lines, *words.hanging(" " * indent, f"the changes of {same}", width)]
    for fragment in plan["fragments"] if plan["settings"] or plan["remedies"] else ():
        label = (
            words.path(fragment["where"], cwd, limit=width - indent - 1)
            if fragment["where"]
            else "in the code"
        )
        if fragment["format"] == "words":
            at = f"write at {label}: " if fragment["where"] else "write: "
            lines += words.hanging(" " * indent, at + words.clean(fragment["text"]), width)
            continue
        lines.append(" " * indent + f"{label}:")
        lines += [" " * (indent + 2) + words.clean(line) for line in fragment["text"].splitlines()]
    said.update(dict.fromkeys(plan["doubts"] if plan["confirm"] and plan["command"] else (), plan["name"]))
    for text in plan["alters"]:
        if said.setdefault(text, plan["name"]) == plan["name"]:
            lines += words.hanging(" " * indent, f"may alter: {text}", width)
    if plan["confirm"] and plan["command"]:
        lines += words.hanging(" " * indent, "measure to confirm: " + "; ".join(plan["doubts"]), width)
    if plan["command"]:
        lines += words.hanging(" " * indent, "try: " + words.clean(plan["command"]), width)
    return lines
