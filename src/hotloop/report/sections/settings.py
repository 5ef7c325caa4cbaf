"""Settings in effect beside what was configured; modules; the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.markup import Markup, details, join, section, table, tag

Report = Mapping[str, Any]


def render(report: Report) -> Markup:
    """Settings, modules and machine, each its own section."""
    return join([_settings(report), _modules(report), _machine(report)])


def _settings(report: Report) -> Markup:
    configured = [setting for setting in report["settings"] if setting["configured"] is not None]
    plain = [setting for setting in report["settings"] if setting["configured"] is None]
    ordered = sorted(configured, key=lambda setting: not setting["differs"])
    rows = [
        [
            tag("code", setting["name"]),
            tag("code", words.value(setting["in_effect"]), class_="bad" if setting["differs"] else None),
            tag("code", words.value(setting["configured"])),
            words.path(setting["where"], report.get("cwd")) if setting["where"] else "",
            words.written(setting["by"], report.get("cwd")) if setting["by"] else "",
        ]
        for setting in ordered
    ]
    differing = sum(setting["differs"] for setting in ordered)
    note = (
        f"{differing} in effect {'differs' if differing == 1 else 'differ'} from what was configured."
        if differing
        else None
    )
    return section(
        "settings",
        "Settings",
        table(
            ["setting", "in effect", "configured", "where", "decided by"],
            rows,
            caption="Settings in effect and configured",
        ),
        tag("dl", *map(_fact_of, plain), class_="facts columns") if plain else None,
        note=note,
    )


def _fact_of(setting: Mapping[str, Any]) -> Markup:
    value = tag("code", words.value(setting["in_effect"]), title=setting["where"])
    return tag("div", tag("dt", tag("code", setting["name"])), tag("dd", value))


def _modules(report: Report) -> Markup:
    rows = [
        [
            tag("code", module["name"] or "(model)"),
            module["cls"],
            f"{module['num_params']:,}" if module["num_params"] else "–",
            module["out_dtype"] or "–",
            units.share(module["forward_share"]),
            units.share(module["backward_share"]),
        ]
        for module in report["modules"]
    ]
    head = ["module", "class", "parameters", "output", "forward", "backward"]
    return section(
        "modules",
        "Modules",
        table(head, rows, numeric=(2, 4, 5), caption="Share of each submodule"),
        note="Shares within forward and backward, from a short window of the run.",
    )


def _machine(report: Report) -> Markup:
    rows = [
        [name, _fact(name, value)]
        for name, value in sorted(_flat(report["machine"]))
        if value not in (None, "", [], {})
    ]
    facts = [
        [tag("code", name), tag("code", words.cut(words.value(value), 300))]
        for name, value in sorted(_flat(report.get("facts") or {}))
        if value not in (None, "", [], {})
    ]
    return section(
        "machine",
        "Machine and versions",
        table(["fact", "value"], rows, caption="The machine"),
        details(
            "Everything known about torch, modules and optimizers",
            table(["fact", "value"], facts, caption="Facts of the process"),
        )
        if facts
        else None,
    )


def _flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for i, item in enumerate(value[:16]):
                found += _flat(item, f"{prefix}{name}[{i}].")
        else:
            found.append((prefix + name, value))
    return found


def _fact(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return units.size(value)
    return words.cut(words.value(value), 300)
