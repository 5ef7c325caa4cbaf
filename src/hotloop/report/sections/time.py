"""Where the time goes: the bar, its legend, the parts of start-up, and the ranks beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.markup import Markup, section, table, tag

Report = Mapping[str, Any]


def render(report: Report) -> Markup:
    """The section, empty where no step was seen."""
    if not report["num_steps"]:
        return Markup()
    return section(
        "time",
        "Where the time goes",
        bar(_span(report), "Training span"),
        tag("div", _legend(report), _startup(report), class_="split"),
        _ranks(report),
        note=f"Of rank {report['lead_rank']}, which holds up the others."
        if report["slowest_rank"] is not None
        else None,
    )


def _span(report: Report) -> list[tuple[str, float, str]]:
    """(phase, share of the training span, words) with what is missing as unaccounted."""
    found = [
        (phase["name"], float(phase["span_share"]), f"{units.duration(phase['s_per_step'])}/step")
        for phase in report["phases"]
        if phase["span_share"] > 0 and phase["name"] != "unaccounted"
    ]
    missing = 1.0 - sum(share for _, share, _ in found)
    return [*found, ("unaccounted", missing, "neither spans nor samples")] if missing > 0.001 else found


def bar(shares: Sequence[tuple[str, float, str]], label: str) -> Markup:
    """One bar of (phase or name of a stage, share, words)."""
    words_ = ", ".join(
        f"{_word(name)} {units.share(share)}" for name, share, _ in sorted(shares, key=lambda item: -item[1])
    )
    parts = (
        tag(
            "span",
            tag("b", f"{_word(name)} {units.share(share)}") if share >= 0.12 else None,
            style=f"flex-grow:{share:.5f};--c:{color(name, i)}",
            title=f"{_word(name)}: {units.share(share)}, {note}",
        )
        for i, (name, share, note) in enumerate(shares)
    )
    return tag("div", *parts, class_="bar", role="img", aria_label=f"{label}: {words_}")


def color(name: str, index: int = 0) -> str:
    """The colour of a phase; of anything else the next of those for lines."""
    return f"var(--p-{name})" if name in words.PHASE_WORDS else f"var(--l-{index % 6})"


def _word(name: str) -> str:
    return words.PHASE_WORDS.get(name, name)


def _legend(report: Report) -> Markup:
    phases = [phase for phase in report["phases"] if phase["share"] > 0 or phase["span_share"] > 0]
    rows = [
        [
            tag(
                "span", tag("i", style=f"--c:var(--p-{phase['name']})", class_="swatch"), _word(phase["name"])
            ),
            units.duration(phase["s_per_step"]) if phase["span_share"] > 0 else "–",
            units.share(phase["span_share"]) if phase["span_share"] > 0 else "–",
            units.duration(phase["seconds"]),
            units.share(phase["share"]),
        ]
        for phase in sorted(phases, key=lambda item: (-item["span_share"], -item["share"]))
    ]
    head = ["phase", "per step", "of training", "in all", "of wall time"]
    return table(head, rows, numeric=(1, 2, 3, 4), caption="Phases of the run")


def _startup(report: Report) -> Markup:
    parts = [part for part in report["startup"]["parts"] if not part["in_training"]]
    if not parts:
        return Markup()
    total = sum(part["seconds"] for part in parts) or 1.0
    items = (
        tag(
            "li",
            tag("span", part["name"]),
            tag(
                "span",
                tag("i", style=f"width:{part['seconds'] / total * 100:.1f}%"),
                class_="gauge",
                aria_hidden="true",
            ),
            tag("span", units.duration(part["seconds"]), class_="num"),
        )
        for part in parts
    )
    after = (
        tag("p", f"Then, in training: {part['name']} {units.duration(part['seconds'])}", class_="note")
        for part in report["startup"]["parts"]
        if part["in_training"]
    )
    return tag(
        "div",
        tag("h3", f"Start-up: {units.duration(report['startup']['seconds'])}"),
        tag("ul", *items, class_="meters"),
        *after,
    )


def _ranks(report: Report) -> Markup:
    ranks = report["ranks"]
    if len(ranks) < 2:
        return Markup()
    names = [name for name in words.PHASE_WORDS if any(rank["phases"].get(name, 0) > 0 for rank in ranks)]
    rows = []
    for rank in ranks:
        slow = rank["rank"] == report["slowest_rank"]
        title = f"rank {rank['rank']}" + (" · slowest" if slow else "")
        whole = rank["s_per_step"] or 0.0
        shares = [
            (name, rank["phases"].get(name, 0.0) / whole, "")
            for name in names
            if whole and rank["phases"].get(name, 0.0)
        ]
        # Where a rank waits for the others: in collectives, and in DDP's part of backward.
        waits = rank["phases"].get("backward", 0.0) + rank["phases"].get("collective", 0.0)
        own = units.duration(max(0.0, whole - waits)) if whole else "–"
        rows.append(
            [
                tag("strong", title) if slow else title,
                f"{rank['num_steps']:,}",
                units.duration(whole),
                own,
                bar(shares, title),
            ]
        )
    head = ["rank", "steps", "per step", "without backward", "phases"]
    return tag(
        "div",
        tag("h3", "Ranks"),
        table(head, rows, numeric=(1, 2, 3), caption="Ranks beside each other"),
        class_="ranks",
    )
