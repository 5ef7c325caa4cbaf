"""Draws docs/images/hit-rate.svg and fills the tables of docs/guides/hit-rate.md (``make docs``)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks" / "feed")]

from replay import draw, simulate  # noqa: E402

from hotloop.feed.hitrate import Policy, Sampling, expected_hit_rate  # noqa: E402

GUIDE = ROOT / "docs" / "guides" / "hit-rate.md"
IMAGE = ROOT / "docs" / "images" / "hit-rate.svg"

NUM_SAMPLES = 20_000
FRACTIONS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
POLICIES: dict[Policy, str] = {
    "keep": "#1b6ca8",
    "clairvoyant": "#2a9d4e",
    "random": "#c77d0a",
    "lru": "#b3323b",
}
NODES = ((2, 0.1), (2, 0.25), (4, 0.1), (4, 0.25), (8, 0.1), (8, 0.25))


def simulated(policy: Policy, fraction: float, sampling: Sampling = "epochs", num_nodes: int = 1) -> float:
    """The hit rate of the second half of ten epochs (of a node's reads)."""
    reads = draw(NUM_SAMPLES, 10 * num_nodes, sampling=sampling, num_nodes=num_nodes)
    hits = simulate(policy, reads, int(fraction * NUM_SAMPLES))
    # Belady's choices look over the end: the last epoch, whose samples have no next use, does not count.
    return float(hits[len(hits) // 2 : -len(hits) // 10].mean())


def tables() -> dict[str, str]:
    """The tables of the guide by name."""
    return {"epochs": _epochs(), "replacement": _replacement(), "shards": _shards()}


def _epochs() -> str:
    lines = ["| c | keep, clairvoyant | random | lru |", "|---|---|---|---|"]
    for c in FRACTIONS:
        cells = [
            f"{expected_hit_rate(policy, c):.4f} ({simulated(policy, c):.4f})"
            for policy in ("keep", "random", "lru")
        ]
        lines.append(f"| {c:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _replacement() -> str:
    lines = ["| c | keep, lru, random | clairvoyant |", "|---|---|---|"]
    for c in (0.1, 0.35, 0.65):
        cells = [
            f"{expected_hit_rate(policy, c, sampling='replacement'):.3f} "
            f"({simulated(policy, c, 'replacement'):.3f})"
            for policy in ("lru", "clairvoyant")
        ]
        lines.append(f"| {c:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shards() -> str:
    lines = ["| nodes | c | keep | lru | clairvoyant |", "|---|---|---|---|---|"]
    for nodes, c in NODES:
        lru = expected_hit_rate("lru", c, sampling="shards", num_nodes=nodes)
        lines.append(
            f"| {nodes} | {c:.2f} | {c:.3f} ({simulated('keep', c, 'shards', nodes):.3f}) "
            f"| {lru:.3f} ({simulated('lru', c, 'shards', nodes):.3f}) "
            f"| ({simulated('clairvoyant', c, 'shards', nodes):.3f}) |"
        )
    return "\n".join(lines)


def filled(text: str, contents: dict[str, str]) -> str:
    """The guide with these tables between their marks."""
    for name, table in contents.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text, flags=re.S)
    return text


def plot(path: Path) -> None:
    """Hit rate against c: lines by formula, dots by simulation; epochs left, replacement right."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "hit-rate", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4.2), sharey=True)
    grid = np.linspace(0, 1, 201)
    samplings: tuple[Sampling, ...] = ("epochs", "replacement")
    for axis, sampling in zip(axes, samplings, strict=True):
        for policy, colour in POLICIES.items():
            curve = [expected_hit_rate(policy, c, sampling=sampling) for c in grid]
            dashes = (0, (6, 4)) if policy == "clairvoyant" else "solid"
            axis.plot(grid, curve, color=colour, linestyle=dashes, label=policy, linewidth=1.8)
            dots = [simulated(policy, c, sampling) for c in FRACTIONS]
            axis.plot(FRACTIONS, dots, "o", color=colour, markersize=4)
        axis.set_xlabel("c: share of the dataset that fits")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("hit rate, cache warm")
    axes[0].set_title("every sample once per epoch, shuffled")
    axes[1].set_title("drawn with replacement")
    axes[0].legend(loc="upper left")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Write the picture and the tables."""
    plot(IMAGE)
    GUIDE.write_text(filled(GUIDE.read_text(), tables()))
    print(f"wrote {IMAGE.relative_to(ROOT)} and the tables of {GUIDE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
