"""The source lines that cost: sampled lines of the training loop and of the workers, and exact call sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hotloop import units
from hotloop.report import words
from hotloop.report.code import excerpt, python
from hotloop.report.markup import Markup, details, join, section, table, tag

#: Lines below this share are shown on request.
_SMALL_RATIO: Final = 0.01

Report = Mapping[str, Any]
Item = Mapping[str, Any]

_NATURES: Final = {
    "python": "Python",
    "native": "native code",
    "waiting": "mostly off the CPU",
    "unknown": "",
}


def render(report: Report) -> Markup:
    """Lines of the loop, then calls; lines of workers stand with their loader."""
    training = [line for line in report["lines"] if line["phase"] != "startup"]
    startup = [line for line in report["lines"] if line["phase"] == "startup"]
    return join(
        [
            _section(
                "lines",
                "Source lines that cost",
                training,
                report,
                note="Stack samples of the training thread. Open a line to see the code around it.",
            ),
            _calls(report),
            _section("startup-lines", "Source lines of start-up", startup, report),
        ]
    )


def _section(id_: str, title: str, lines: Sequence[Item], report: Report, note: str | None = None) -> Markup:
    return section(id_, title, listing(lines, report), note=note)


def listing(lines: Sequence[Item], report: Report) -> Markup:
    """Lines as rows that open to their code; small ones only on request."""
    if not lines:
        return Markup()
    large = [line for i, line in enumerate(lines) if line["share"] >= _SMALL_RATIO or i < 3]
    small = [line for line in lines if not any(line is other for other in large)]
    rest = (
        details(f"{len(small)} more below {units.share(_SMALL_RATIO)}", _rows(small, report))
        if small
        else None
    )
    return join([_rows(large, report), rest])


def _rows(lines: Sequence[Item], report: Report) -> Markup:
    return tag("div", *(_row(line, report) for line in lines), class_="lines")


def _row(line: Item, report: Report) -> Markup:
    place = line["place"]
    name = words.place(place, report.get("cwd"))
    in_loop = "s_per_step" in line  # a worker's line makes batches, and its loader says so
    about = [str(words.PHASE_WORDS.get(line["phase"], line["phase"]))] if in_loop else []
    if line["role"] not in ("other", "input", line["phase"]):
        about.append(line["role"])
    about.append(_NATURES.get(line["nature"], ""))
    if line["library"]:
        about.append(f"in {line['library']}")
    share = float(line["share"])
    head = tag(
        "summary",
        tag("span", units.share(share), class_="num share"),
        tag(
            "span",
            tag("i", style=f"width:{min(1.0, share) * 100:.1f}%;--c:var(--p-{line['phase']})"),
            class_="gauge",
            aria_hidden="true",
        ),
        tag("span", _cost(line), class_="num cost"),
        tag(
            "span",
            tag(
                "code", python(line["source"]) if line["source"] else "(source not recorded)", class_="source"
            ),
            tag("span", tag("span", name, title=place["file"]), f" · {_dotted(about)}", class_="where"),
            class_="what",
        ),
    )
    return tag(
        "details",
        head,
        _statement(line, report),
        excerpt(line["excerpt"], place["line"])
        or tag("p", "The source of this file was not recorded.", class_="note"),
    )


def _cost(line: Item) -> str:
    each = line.get("s_per_step")
    return f"{units.duration(each)}/step" if each is not None else units.duration(line["seconds"])


def _statement(line: Item, report: Report) -> Markup | None:
    statement = line["statement"]
    if not statement or statement == line["place"]:
        return None
    return tag(
        "p", "Reached from ", tag("code", words.place(statement, report.get("cwd"))), ".", class_="note"
    )


def _dotted(parts: Sequence[str]) -> str:
    return " · ".join(part for part in parts if part)


_KINDS: Final = {
    "sync": "Host waits for the device",
    "transfer": "Copies between host and device",
    "collective": "Collectives",
    "logging": "Logging",
    "checkpoint": "Checkpoints",
    "socket": "Sockets",
}


def _calls(report: Report) -> Markup:
    rows = []
    sites = [(kind, site) for kind, items in report["sites"].items() for site in items]
    for kind, site in sorted(sites, key=lambda item: -item[1]["seconds"]):
        rows.append(
            [
                _KINDS.get(kind, kind),
                tag("code", site["operation"]),
                _site(site, report),
                f"{site['count']:,}",
                units.size(site["num_bytes"]) if site["num_bytes"] else "–",
                units.duration(site["seconds"]),
                units.duration(site["s_per_step"]),
                _flags(site),
            ]
        )
    head = ["kind", "call", "where", "calls", "bytes", "in all", "per step", ""]
    return section(
        "calls",
        "Calls that cost",
        table(head, rows, numeric=(3, 4, 5, 6), caption="Observed calls and their exact time"),
    )


def _site(site: Item, report: Report) -> Markup:
    place = site["place"]
    if not place:
        return tag("span", "inside a library")
    return tag(
        "span",
        tag("code", words.place(place, report.get("cwd"), limit=60), title=place["file"]),
        tag("span", site["source"], class_="where") if site["source"] else None,
    )


def _flags(site: Item) -> str:
    known = [
        f"{name} {units.share(float(value))}"
        for name, value in sorted(site["flags"].items())
        if value is not None
    ]
    return ", ".join(known if site["in_step"] else [*known, "outside of steps"])
