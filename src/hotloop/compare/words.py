"""A verdict in as many columns as the terminal has."""

from __future__ import annotations

from typing import Final

from rich.cells import set_cell_size

from hotloop import language
from hotloop.compare.speed import Speed
from hotloop.compare.verdict import Verdict
from hotloop.units import rate

WIDTH: Final = 80
_MARK: Final = {"passed": "passed", "failed": "FAILED", "not-measured": "not measured"}
PARITY: Final = {
    "exact": "the candidate computes the same, bit for bit",
    "within-noise": "nothing beyond noise differs; a small change cannot be excluded",
    "differs": "the candidate does not compute the same",
    "not-measured": "cannot tell whether the candidate computes the same: longer runs can, or runs of the "
    "base under other seeds (--baseline RUN)",
}


def render(verdict: Verdict, width: int = WIDTH) -> str:
    """The verdict, its checks, and what is to be known besides."""
    names = max([len(item.name) for item in verdict.items], default=0)
    allowed = f", which {verdict.effect} allows" if verdict.passed and verdict.parity == "differs" else ""
    lines = [
        *hanging("base       ", verdict.base, width),
        *hanging("candidate  ", verdict.candidate, width),
        "",
        *hanging("parity     ", f"{verdict.parity}: {PARITY[verdict.parity]}{allowed}", width),
        *hanging("speed      ", speed_words(verdict.speed), width),
        "",
    ]
    for item in verdict.items:
        limit = f" (asked: {item.limit})" if isinstance(item.limit, str) and item.limit != "yes" else ""
        lines += hanging(f"{_MARK[item.status]:<14}{item.name:<{names + 2}}", item.words + limit, width)
    lines += [""] * bool(verdict.words)
    lines += [line for words in verdict.words for line in hanging("note: ", words, width)]
    told = "FAILED" if verdict.parity == "differs" or verdict.failed else "cannot tell"
    lines += ["", *hanging(f"{'passed' if verdict.passed else told}: ", _reason(verdict), width)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def speed_words(speed: Speed) -> str:
    """The ratio with its interval, and both rates."""
    if speed.ratio is None or speed.base_per_s is None or speed.candidate_per_s is None:
        return f"not measured: {speed.words}"
    edges = f" [{speed.ci95[0]:.2f}, {speed.ci95[1]:.2f}]" if speed.ci95 else ""
    rates = f"{rate(speed.base_per_s)} -> {rate(speed.candidate_per_s)} {speed.of}/s"
    return f"{speed.ratio:.2f}x{edges}, {rates}"


def _reason(verdict: Verdict) -> str:
    if verdict.failed:
        return f"{', '.join(verdict.failed)} (allowed: {verdict.effect})"
    if not verdict.passed:
        return f"parity is {verdict.parity}, {verdict.effect} was asked for"
    missing = sum(item.status == "not-measured" for item in verdict.items)
    return f"{verdict.effect}" + (f", {missing} not measured" if missing else "")


def hanging(head: str, words: str, width: int = WIDTH) -> list[str]:
    """Lines with a head before the first, others below its end or all below a wide head; paths stay whole."""
    mark = set_cell_size(language.said(head.rstrip()), len(head))
    whole = len(head) * 2 > width
    return [mark.rstrip()] * whole + language.lines(words, width, "    " if whole else mark)
