"""The report as one HTML file: no request leaves it, and all but the charts reads without JavaScript."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from hotloop.report import palette, words
from hotloop.report.markup import Markup, join, tag
from hotloop.report.sections import (
    charts,
    device,
    findings,
    lines,
    loaders,
    memory,
    pauses,
    settings,
    summary,
    time,
)

Report = Mapping[str, Any]

#: The page may use what it carries and nothing else.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_SECTIONS: Final = (summary, time, findings, charts, device, lines, pauses, memory, loaders, settings)
_LINKS: Final = (
    ("time", "Time"), ("findings", "Findings"), ("charts", "Charts"), ("device", "Device"),
    ("lines", "Lines"), ("calls", "Calls"), ("memory", "Memory"), ("loaders", "Loaders"),
    ("settings", "Settings"), ("modules", "Modules"), ("machine", "Machine"), ("files", "Files"),
)  # fmt: skip


def render(report: Report) -> str:
    """The whole page."""
    command = words.command(report["command"])
    folder = report.get("run_folder")
    return page(
        f"hotloop: {command[:120]}",
        join(part.render(report) for part in _SECTIONS),
        f"hotloop {report['hotloop_version']}, report schema {report['schema']}"
        + (f". Recording: {folder}" if folder else ""),
        {"wall_s": report["wall_s"], "span": report["span"], "charts": charts.specs(report)},
    )


def page(title: str, body: str, foot: str, data: Mapping[str, Any]) -> str:
    """A page around sections; ``data`` is what its script draws: ``wall_s`` and ``charts``."""
    return (
        "<!doctype html>\n"
        + tag(
            "html",
            _head(title),
            tag("body", _top(body), tag("main", body), tag("footer", tag("p", foot)), *_scripts(data)),
            lang="en",
        )
        + "\n"
    )


def _head(title: str) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(_colours() + _asset("report.css"))),
    )


def _top(body: str) -> Markup:
    links = [tag("a", name, href=f"#{id_}") for id_, name in _LINKS if f'id="{id_}"' in body]
    toggle = tag("button", "Theme: auto", type="button", id="theme", aria_label="Colour theme: automatic")
    return tag(
        "header",
        tag("a", "hotloop", href="#summary", class_="brand"),
        tag("nav", *links, aria_label="Sections"),
        toggle,
        class_="top",
    )


def _scripts(data: Mapping[str, Any]) -> list[Markup]:
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # Inside a script element only "<" can end it or open a comment.
    return [
        tag("script", Markup(text.replace("<", "\\u003c")), type="application/json", id="data"),
        tag("script", Markup(_asset("report.js"))),
    ]


def _colours() -> str:
    """Custom properties of both themes; the dark ones twice, for the system's wish and for the reader's."""
    light = {f"--p-{name}": mark[1] for name, mark in palette.PHASE_MARKS.items()}
    dark = {f"--p-{name}": mark[2] for name, mark in palette.PHASE_MARKS.items()}
    light |= {f"--{name}": pair[0] for name, pair in palette.PAGE.items()}
    dark |= {f"--{name}": pair[1] for name, pair in palette.PAGE.items()}
    return (
        f":root{{color-scheme:light;{_properties(light)}}}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{_properties(dark)}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{_properties(dark)}}}\n"
    )


def _properties(values: Mapping[str, str]) -> str:
    return "".join(f"{name}:{value};" for name, value in values.items())


def _asset(name: str) -> str:
    return resources.files("hotloop.report").joinpath("assets", name).read_text(encoding="utf-8")
