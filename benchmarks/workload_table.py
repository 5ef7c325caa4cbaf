"""The table of a result of ``benchmarks/workloads.py``, as it is printed and as it stands on a page.

A page holds ``<!-- figures: NAME-DEVICE -->`` before a fence: ``fill`` puts the newest result of that name
into it, so that no figure is copied by hand. The README holds a line for each result that it names.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGES = Path(__file__).parents[1] / "docs" / "workloads"
README = Path(__file__).parents[1] / "README.md"
_LINE = re.compile(r"^(\| [^|]*<!-- figures: ([\w-]+) -->) \|.*$", re.M)
_FIGURES = re.compile(r"(<!-- figures: ([\w-]+) -->\n```\n)(?:(?!```).*\n)*(```\n)")


def table(result: Mapping[str, Any]) -> str:
    """Rates with spread and ratio, phases, losses and claims, in lines of at most 80 columns."""
    if "quality" in result:
        return "\n".join(_quality(result)) + "\n"
    return "\n".join([*_rates(result), "", *_phases(result["variants"]), "", *_rest(result)]) + "\n"


def newest(name: str) -> dict[str, Any] | None:
    """The last result of ``NAME-DEVICE``, None without one."""
    found = sorted(RESULTS.glob(f"{name}-[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].json"))
    return json.loads(found[-1].read_text()) if found else None


def fill(text: str) -> str:
    """A page's text with the newest figures in each marked fence."""

    def figures(match: re.Match[str]) -> str:
        result = newest(match[2])
        if result is None:
            return match[0]
        return f"{match[1]}{_command(result)}\n{table(result)}{match[3]}"

    return _FIGURES.sub(figures, text)


def pages() -> dict[Path, str]:
    """Every page that holds figures, the README among them, with its text filled anew."""
    texts = {page: page.read_text() for page in sorted(PAGES.glob("*.md"))}
    filled = {page: fill(text) for page, text in texts.items() if _FIGURES.search(text)}
    return {**filled, README: _LINE.sub(_line, README.read_text())}


def _line(match: re.Match[str]) -> str:
    """A row of the README: samples per second as found, and how many times as many then."""
    result = newest(match[2])
    if result is None:
        return match[0]
    base, *others = result["variants"]
    rates = [f"{base['samples_per_s']:,.3g}"]
    for row in others:
        low, high = row["ci95"]
        rates.append(f"{row['ratio']:.2f}x ({low:.2f} - {high:.2f})")
    return " | ".join([match[1], *rates]) + " |"


def _quality(result: Mapping[str, Any]) -> list[str]:
    """PSNR by row, the mean over seeds, and how far the row is from the first, seed by seed."""
    rows: Mapping[str, Mapping[str, Mapping[str, Any]]] = result["quality"]
    base = next(iter(rows.values()))
    width = max(map(len, rows)) + 2
    lines = [f"{'':<{width}}{'updates':>7}{'PSNR':>10}{'difference':>12}{'by seed':>18}{'ms a step':>11}"]
    for name, seeds in rows.items():
        steps, found, ms = (mean(one[key] for one in seeds.values()) for key in ("steps", "psnr_db", "ms"))
        prices = [one["psnr_db"] - base[seed]["psnr_db"] for seed, one in seeds.items() if seed in base]
        each = ", ".join(f"{price:+.2f}" for price in prices)
        price = f"{mean(prices):>+9.2f} dB" if prices else f"{'-':>12}"
        lines.append(f"{name:<{width}}{steps:>7,.0f}{found:>7.2f} dB{price}{each:>18}{ms:>11.1f}")
    machine = result["machine"]
    dates = sorted({one.get("date", result["date"]) for seeds in rows.values() for one in seeds.values()})
    told = f"{', '.join(dates)}, {machine['cores']} cores, {machine['device']}, torch {machine['torch']}"
    return [*lines, "", told]


def _command(result: Mapping[str, Any]) -> str:
    if "quality" in result:
        return f"$ python benchmarks/quality.py {result['workload']}"
    words = ["$ python benchmarks/workloads.py", result["workload"], "--scale", result["scale"]]
    words += ["--rounds", str(result["rounds"]), "--seconds", f"{result['turn_s']:g}"]
    variants = [row["variant"] for row in result["variants"]]
    if variants != ["as_found", "guide", "cured"]:
        words += ["\\\n    --variants", *variants]
    if result["flags"]:
        words += ["\\\n    --", *result["flags"]]
    return " ".join(words)


def _width(rows: Sequence[Mapping[str, Any]]) -> int:
    return max(len(row["variant"]) for row in rows) + 2


def _rates(result: Mapping[str, Any]) -> list[str]:
    rows = result["variants"]
    width, base = _width(rows), rows[0]
    digits = 0 if base["samples_per_s"] >= 10 else 2
    lines = [
        f"{result['workload']}, {result['scale']} scale: {result['rounds']} rounds of "
        f"{result['turn_s']:g} s turns, {result['date']}",
        "",
        f"{'':<{width}}{'samples/s':>10}  {'middle half':<18}{'x ' + base['variant']:>11}"
        f"  {'95 %':<13}{'memory':>9}",
    ]
    for row in rows:
        spread = "{:,.{d}f} .. {:,.{d}f}".format(*row["middle_half"], d=digits)
        low, high = row["ci95"]
        limits = "" if row is base else f"{low:.2f} .. {high:.2f}" if high < 10 * low else "not known"
        lines.append(
            f"{row['variant']:<{width}}{row['samples_per_s']:>10,.{digits}f}  {spread:<18}"
            f"{row['ratio']:>11.2f}  {limits:<13}{row['peak_bytes'] / 1e9:>6.2f} GB"
        )
    left_out = [row.get("left_out_samples_per_s") for row in rows]
    if all(left_out):
        rates = ", ".join(f"{rate:,.{digits}f}" for rate in left_out)
        lines += ["", f"a turn of each before these does not count, its caches filled: {rates}"]
    return lines


def _phases(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    width = _width(rows)
    return [
        f"{'ms per step':<{width}}" + "".join(f"{phase:>10}" for phase in rows[0]["phases_s"]),
        *(
            f"{row['variant']:<{width}}" + "".join(f"{1e3 * s:>10.1f}" for s in row["phases_s"].values())
            for row in rows
        ),
    ]


def _rest(result: Mapping[str, Any]) -> list[str]:
    rows = result["variants"]
    width, base = _width(rows), rows[0]
    lines = [f"losses of the first {len(base['losses'])} steps beside those of {base['variant']}:"]
    lines += [
        f"{row['variant']:<{width}}differ by at most {row['largest_loss_difference']:.1e} of their value"
        for row in rows[1:]
    ]
    machine = result["machine"]
    lines += ["", f"{machine['cores']} cores, {machine['device']}, torch {machine['torch']}"]
    for claim in result["claims"]:
        lines += textwrap.wrap(f"the guide says: {claim}", 80, subsequent_indent="  ")
    return lines
