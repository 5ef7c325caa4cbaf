"""The picture of docs/evidence.md; ``docs/generate.py`` draws it again, byte for byte.

Greys and colours of middle lightness on no background: readable on a light and on a dark page.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from result_files import share_interval

OURS, THEIRS, GREY = "#2f8f7a", "#b06a3b", "#808080"
#: The same bytes each time: text stays text, ids come from no clock.
STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "hotloop", "font.size": 9, "font.family": "sans-serif",
    "text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY, "xtick.color": GREY,
    "ytick.color": GREY, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """So many right answers of so many."""

    name: str
    right: int
    total: int
    ours: bool = True


def draw(bars: Sequence[Bar], paths: Sequence[tuple[float, float]]) -> str:
    """The picture as SVG. ``paths``: speed before and after tuning, as shares of a cure by hand."""
    with plt.style.context(["default", STYLE]):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), width_ratios=(1, 1))
        figure.subplots_adjust(left=0.21, right=0.985, top=0.92, bottom=0.13, wspace=0.12)
        _bars(left, bars)
        _paths(right, paths)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _bars(axes: Any, bars: Sequence[Bar]) -> None:
    for at, bar in enumerate(reversed(bars)):
        part, (low, high) = bar.right / bar.total, share_interval(bar.right, bar.total)
        axes.barh(at, part * 100, color=OURS if bar.ours else THEIRS, height=0.6, alpha=0.75)
        axes.plot([low * 100, high * 100], [at, at], color=GREY, linewidth=1.5)
        axes.text(103, at, f"{bar.right} of {bar.total}", va="center")
    axes.set_yticks(range(len(bars)), [bar.name for bar in reversed(bars)])
    axes.set(xlim=(0, 125), xticks=range(0, 101, 25), xlabel="first answer right, %", title="Accuracy")
    axes.tick_params(length=0)


def _paths(axes: Any, paths: Sequence[tuple[float, float]]) -> None:
    ordered = sorted(paths, key=lambda path: path[1])
    for at, (before, after) in enumerate(ordered):
        axes.plot([before, after], [at, at], color=GREY, linewidth=0.8, alpha=0.7)
    heights = range(len(ordered))
    axes.scatter([path[0] for path in ordered], heights, s=10, color=THEIRS, label="unmodified", zorder=3)
    axes.scatter([path[1] for path in ordered], heights, s=10, color=OURS, label="tuned", zorder=3)
    axes.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yticks=[], xlabel="speed, where a cure by hand is 1", title="What tune recovers")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="lower right")
