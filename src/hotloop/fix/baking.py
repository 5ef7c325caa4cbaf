"""``hotloop.feed.bake`` around the dataset of the driving loader: written once, opened from then on."""

from __future__ import annotations

import ast
import re
import shutil
from typing import Any, Final

from hotloop.fix.feeds import dataset_of, imported
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Built, Cannot
from hotloop.units import size

#: A disk is not filled beyond this share of what is free.
_MOST_OF_DISK: Final = 0.8


def bake(plan: Plan, value: Any) -> None:
    """``hotloop.feed.bake(dataset, folder)``, which opens a bake that is there and refuses a stale one."""
    built, code, dataset = dataset_of(plan)
    place = str(code.path), code.line(dataset)
    if any(one.id != built.id and one.site.frames[-1] == built.site.frames[-1] for one in plan.scene.loaders):
        raise Cannot("the same call builds other loaders, whose samples are others", *place)
    _require_samples_only(plan)
    num_bytes = _num_bytes(plan, built, place)
    free = shutil.disk_usage(plan.scene.started).free
    if num_bytes > _MOST_OF_DISK * free:
        raise Cannot(f"the samples take about {size(num_bytes)}: more than the disk has free", *place)
    folder = str(value) if value else _folder(built)
    new = f'{imported(plan, code, "bake")}({code.source(dataset)}, "{folder}")'
    plan.replace(code, dataset, new, f"the dataset is baked into {folder}")
    plan.remark(
        f"bake: the first run writes about {size(num_bytes)} to {folder}, in the folder it is started in, "
        "before it trains; a run with another dataset, or other code of it, ends with an error that says so"
    )


def _folder(built: Built) -> str:
    """``scan-windows.baked`` of a ScanWindows."""
    name = str((built.settings.get("dataset") or {}).get("inner_class") or "dataset")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower() + ".baked"


def _num_bytes(plan: Plan, built: Built, place: tuple[str, int]) -> int:
    """About how large all samples are, by the batches that were seen. Raises Cannot."""
    notes = plan.scene.process.notes
    mine = {note.get("id") for note in notes.get("iterator", ()) if note.get("loader") == built.id}
    seen = [int(note.get("bytes") or 0) for note in notes.get("batch", ()) if note.get("iterator") in mine]
    num_samples = (built.settings.get("dataset") or {}).get("len")
    batch_size = built.settings.get("batch_size")
    if not seen or not max(seen) or not num_samples or not batch_size:
        raise Cannot("how large the samples are was not seen", *place)
    return round(max(seen) / int(batch_size) * int(num_samples))


def _require_samples_only(plan: Plan) -> None:
    """Raises Cannot where the dataset is asked for more than samples; ``bake`` refuses random ones itself."""
    for other in plan.scene.codes(".dataset."):
        for node in other.nodes(ast.Attribute):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "dataset":
                words = "more than its samples is asked of the loader's dataset here"
                raise Cannot(words, str(other.path), other.line(node))
