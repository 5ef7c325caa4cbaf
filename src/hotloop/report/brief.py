"""A brief as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotloop import units
from hotloop.report import words


def render(brief: Mapping[str, Any]) -> str:
    """The document of ``flow.brief``, to be read by a person or given to a coding agent."""
    parts = [
        f"# {brief['id']}",
        brief["title"],
        f"The command `{words.command(brief['command'])}` ran in `{words.clean(brief['cwd'])}`; "
        f"its recording is `{words.clean(brief['run'])}`.",
        "## Cause",
        words.clean(brief["cause"]),
        _code(brief),
        _list(brief["evidence"]),
        "## Numbers",
        _numbers(brief["numbers"]),
        "## What to write",
        words.clean(brief["advice"]),
        brief["recipe"],
        _remedies(brief["remedies"]),
        "## What must stay the same",
        _list(brief["same"]),
        "## How to judge it",
        f"In `{words.clean(brief['cwd'])}`:",
        *(f"{one['what'].capitalize()}\n\n```\n{words.clean(one['command'])}\n```" for one in brief["judge"]),
        f"`verify` exits with 0 where the results are what `{brief['effect']}` asks for, else with 1. "
        "`compare` gives the ratio of speeds with its 95 % interval: a gain is shown where that lies "
        "above 1.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _code(brief: Mapping[str, Any]) -> str:
    where, code = brief["where"], brief["code"]
    if not where:
        return "The finding names no line."
    function = f" in `{words.clean(where['function'])}`" if where.get("function") else ""
    place = f"`{words.place(where, brief['cwd'])}`{function}"
    if not code:
        return f"{place}; its source is not in the recording."
    width = len(str(code["first"] + len(code["lines"])))
    lines = [
        f"{'>' if number == where['line'] else ' '} {number:>{width}}  {words.clean(line)}".rstrip()
        for number, line in enumerate(code["lines"], start=code["first"])
    ]
    return f"{place}:\n\n```python\n" + "\n".join(lines) + "\n```"


def _numbers(numbers: Mapping[str, Any]) -> str:
    if not numbers["step_s"]:
        return "No training step was seen."
    lines = [f"a step takes {units.duration(numbers['step_s'])}, the mean of {numbers['steps']:,}"]
    if edges := numbers["steps_per_s_ci95"]:
        rate = units.rate(numbers["steps_per_s"])
        lines.append(
            f"{rate} steps/s when steady, 95 % between {units.rate(edges[0])} and {units.rate(edges[1])}"
        )
    if numbers["cost_s_per_step"] > 0:
        spent = units.duration(numbers["cost_s_per_step"])
        cost = f"the cause costs {spent} of it ({units.share(numbers['share'])})"
        if edges := numbers["cost_ci95"]:
            cost += f", 95 % between {units.duration(edges[0])} and {units.duration(edges[1])}"
        lines.append(cost)
    if most := numbers["most_gain"]:
        known = [edge for edge in numbers["most_gain_ci95"] or () if edge]
        between = f" ({known[0]:.2f} - {known[1]:.2f})" if len(known) == 2 else ""
        lines.append(f"without it the run is at most {most:.2f} times as fast{between}")
    if gain := numbers["measured_gain"]:
        lines.append(f"measured without it: {gain['ratio']:.2f} times as fast")
    return _list(lines)


def _remedies(remedies: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for one in remedies:
        alters = f"; may alter: {one['alters']}" if one["alters"] else ""
        ways = [f"`hotloop fix RUN --apply {one['spelled']}` writes it"] if one["fix"] else []
        ways += (
            [f"`hotloop run --apply {one['spelled']} -- ...` tries it without an edit"]
            if one["apply"]
            else []
        )
        lines.append(
            f"`{one['id']}` ({one['effect']}): {'; '.join([words.clean(one['write']), *ways])}{alters}"
        )
    return _list(lines)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
