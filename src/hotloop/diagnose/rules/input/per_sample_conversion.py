"""``input/per-sample-conversion``: each sample is converted by itself where a whole array could be converted
at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.collating import in_collate, per_sample_lines
from hotloop.diagnose.converting import by_rows
from hotloop.diagnose.cropping import crop
from hotloop.diagnose.discovery import EDIT
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import quoted
from hotloop.diagnose.reading import is_conversion, part_of, scales
from hotloop.findings import Finding

ID = "input/per-sample-conversion"
EFFORT = EDIT
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Add up the lines that convert one sample, and price them as part of making a batch."""
    feed = costs.feed(evidence)
    if feed is None:
        return
    loader = feed.loader
    part = part_of(per_sample_lines(loader), loader.lines_total_s, is_conversion)
    if part is None or part.share < evidence.limits.hot_line_ratio:
        return
    if in_collate(loader, part.lines[0], part.share):
        return
    cost = feed.saved_by_make(part.share) * costs.exposed_ratio(evidence.steps, "data_wait")
    others = f", {units.share(part.share)} with the other conversions" if len(part.lines) > 1 else ""
    cut = crop(evidence, loader, before=part.place)
    yield Finding(
        id=ID,
        message=(
            f"The line{quoted(part.lines[0])} at {says.at(part.place)} converts every sample by itself: "
            f"{units.share(part.lines[0].seconds / loader.lines_total_s)} of making a batch"
            f"{others}{f'; {cut.words}' if cut else ''}."
        ),
        advice=(
            f"Cut the crop first and convert only that: move what {says.at(cut.place)} cuts before "
            f"{says.at(part.place)}. Frames kept as bytes, in memory or memory-mapped, are cut without "
            "decoding them again."
            if cut
            else "Convert the whole array once when the dataset is built, or one batch at a time in "
            "collate_fn or __getitems__; leave only indexing in __getitem__."
        ),
        evidence=(
            says.waits(feed),
            says.makes(feed),
            *(
                f"{says.at(line.place)}{quoted(line)}: "
                f"{units.share(line.seconds / loader.lines_total_s)}"
                f"{' in ' + line.library if line.library else ''}"
                for line in part.lines[:3]
            ),
            f"num_workers={feed.workers} on {units.rate(feed.cores)} cores",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "data_wait"),
        where=part.place,
        remedies=("crop-first",)
        if cut
        else ("pretransform", "convert-once", "bake")
        if scales(part.source)
        else (*by_rows(evidence, part.place), "convert-once", "bake"),
        data={"share_of_make": part.share},
    )
