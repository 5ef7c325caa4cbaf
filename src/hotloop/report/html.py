"""The report as one HTML file: no request leaves it, and all but the charts reads without JavaScript.

The pages are templates (``assets/*.j2``); here is what they are filled with.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, pass_context
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Number, Operator, String

from hotloop import language, units
from hotloop.findings import pages
from hotloop.report import charts, footprint, remaining, words
from hotloop.report.words import clean, reasons

Report = Mapping[str, Any]

_ASSETS: Final = Path(__file__).with_name("assets")


def render(report: Report) -> str:
    """The whole page of a run."""
    command, folder = words.command(report["command"]) or words.NO_COMMAND, report.get("run_folder")
    specs = charts.specs(report)
    sites = [(kind, site) for kind, items in report["sites"].items() for site in items]
    phases = [phase for phase in report["phases"] if phase["share"] > 0 or phase["span_share"] > 0]
    body = environment().get_template("run.html.j2").render(
        report=report,
        verdict=words.verdict(report),
        cwd=report.get("cwd"),
        command=command,
        absence=reasons(report),
        remaining=remaining.words(report["remaining"]) if report.get("remaining") else "",
        span=_span(report),
        phases=sorted(phases, key=lambda item: (-item["span_share"], -item["share"])),
        ranks=[_rank(rank, report["slowest_rank"]) for rank in report["ranks"]],
        specs=specs,
        sites=sorted(sites, key=lambda item: -item[1]["seconds"]),
        footprint=footprint,
    )  # fmt: skip
    foot = f"hotloop {report['hotloop_version']}, report schema {report['schema']}"
    foot += f". Recording: {folder}" if folder else ""
    drawn = {name: report.get(name) for name in ("flame", "histogram", "waterfall", "step_s")}
    data = {"wall_s": report["wall_s"], "span": report["span"], "charts": specs, **drawn}
    return page(f"hotloop: {command[:120]}", Markup(body), foot, data)


def page(title: str, body: Markup, foot: str, data: Mapping[str, Any]) -> str:
    """A page around sections; ``data`` is what its script draws: ``wall_s`` and ``charts``."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    whole: str = environment().get_template("page.html.j2").render(
        title=title,
        body=body,
        foot=foot,
        style=Markup(style()),
        # Inside a script element only "<" can end it or open a comment.
        data=Markup(text.replace("<", "\\u003c")),
        script=Markup(script("plots", "steps", "report")),
    )  # fmt: skip
    return language.page(whole)


def script(*names: str) -> str:
    """Scripts of pages, one behind the other."""
    return "".join((_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in names)


def style() -> str:
    """The style of every page, with the colours of phases."""
    phases = "".join(f"--p-{name}:light-dark({a},{b});" for name, (_, a, b) in words.PHASE_MARKS.items())
    return (_ASSETS / "report.css").read_text(encoding="utf-8") + f":root{{{phases}}}"


def brief(document: Mapping[str, Any]) -> str:
    """The document of ``flow.brief`` as Markdown, to be read by a person or given to a coding agent."""
    template = environment().overlay(autoescape=False).get_template("brief.md.j2")
    return template.render(brief=document, cwd=document["cwd"])


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates; every text that they are filled with is escaped and has no control characters."""
    made = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "duration": units.duration,
        "size": units.size,
        "rate": units.rate,
        "share": units.share,
        "number": "{:,}".format,
        "cut": words.cut,
        "value": words.value,
        "command": words.command,
        "phase": lambda name: language.said(words.PHASE_WORDS.get(name, name)),
        "color": _color,
        "place": pass_context(
            lambda context, where, limit=None: words.place(where, context.get("cwd"), limit=limit)
        ),
        "path": pass_context(lambda context, file: words.path(file, context.get("cwd"))),
        "written": pass_context(lambda context, by: words.written(by, context.get("cwd"))),
        "sentences": _sentences,
        "python": python,
        "excerpt": excerpt,
        "page": page_of,
        "note": lambda text: Markup('<p class="note">{}</p>').format(text),
        "facts": _facts,
    }
    return made


def _finalized(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return "\n".join(map(words.clean, str(value).split("\n")))


def _color(name: str, index: int = 0) -> str:
    """The colour of a phase; of anything else the next of those for lines."""
    return f"var(--p-{name})" if name in words.PHASE_WORDS else f"var(--l-{index % 6})"


def _sentences(verdict: str) -> tuple[str, str]:
    """The first sentence, and what follows it. A dot inside a name or a number ends no sentence."""
    match = re.search(r"(?<=[^.])\.\s+(?=[A-Z])|。(?=.)", verdict)
    return (verdict[: match.start() + 1], verdict[match.end() :]) if match else (verdict, "")


def _span(report: Report) -> list[tuple[str, float, str]]:
    """(phase, share of the training span, words) with what is missing as unaccounted."""
    found = [
        (phase["name"], float(phase["span_share"]), f"{units.duration(phase['s_per_step'])}/step")
        for phase in report["phases"]
        if phase["span_share"] > 0 and phase["name"] != "unaccounted"
    ]
    missing = 1.0 - sum(share for _, share, _ in found)
    return [*found, ("unaccounted", missing, "neither spans nor samples")] if missing > 0.001 else found


def _rank(rank: Mapping[str, Any], slowest: int | None) -> dict[str, Any]:
    """A row of the ranks."""
    whole, phases = rank["s_per_step"] or 0.0, rank["phases"]
    shares = [(name, phases[name] / whole, "") for name in words.PHASE_WORDS if whole and phases.get(name)]
    title = f"rank {rank['rank']}" + (" · slowest" if rank["rank"] == slowest else "")
    return {**rank, "title": title, "whole": whole, "shares": shares}


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts as rows, sorted, those without a value left out."""
    return [
        (name, units.size(value) if _is_size(name, value) else words.cut(words.value(value), 600))
        for name, value in sorted(facts.items())
        if value not in (None, "", [], {})
    ]


def _is_size(name: str, value: object) -> bool:
    return name.endswith("_bytes") and isinstance(value, (int, float))


_CLASSES: Final = ((Comment, "c"), (String, "s"), (Number, "n"), (Keyword, "k"), (Operator.Word, "k"))


def excerpt(around: Mapping[str, Any] | None, line: int) -> Markup:
    """Numbered lines with ``line`` marked; nothing where the source is not known."""
    if not around:
        return Markup()
    first, lines = int(around["first"]), textwrap.dedent("\n".join(around["lines"])).split("\n")
    width = len(str(first + len(lines)))
    rows = [
        Markup('<span class="row{}"><span class="ln" aria-hidden="true">{} </span>{}\n</span>').format(
            " hit" if number == line else "", f"{number:>{width}}", python(source)
        )
        for number, source in enumerate(lines, start=first)
    ]
    return Markup('<pre tabindex="0"><code>{}</code></pre>').format(Markup().join(rows))


def python(line: str) -> Markup:
    """One line of Python with comments, strings, numbers and keywords marked."""
    tokens = PythonLexer(stripnl=False, ensurenl=False).get_tokens(clean(line))
    marked = ((next((mark for kind, mark in _CLASSES if token in kind), ""), text) for token, text in tokens)
    parts = []
    for mark, group in groupby(marked, key=lambda one: one[0]):
        text = "".join(text for _, text in group)
        parts.append(Markup('<span class="{}">{}</span>').format(mark, text) if mark else escape(text))
    return Markup().join(parts)


def page_of(finding_id: str) -> Markup:
    """The page about a finding without its title; nothing where there is none."""
    tokens = _parser().parse(pages.page(finding_id))
    if tokens and tokens[0].tag == "h1":
        tokens = tokens[3:]  # the card carries the title
    for token in tokens:
        token.tag = "h4" if token.tag in ("h2", "h3") else token.tag
    text = _parser().renderer.render(tokens, _parser().options, {}).strip()
    text = text.replace("<a href=", '<a rel="noreferrer" href=')
    text = text.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    return Markup(text)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")
