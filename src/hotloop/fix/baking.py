"""``hotloop.feed.bake`` around the dataset of the driving loader: written once, opened from then on."""

from __future__ import annotations

import ast
import re
from typing import Any

from hotloop.fix.feeds import dataset_of, imported
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Built, Cannot


def bake(plan: Plan, value: Any) -> None:
    """``hotloop.feed.bake(dataset, folder)``, which opens a bake that is there and refuses a stale one."""
    built, code, dataset = dataset_of(plan)
    place = str(code.path), code.line(dataset)
    if any(one.id != built.id and one.site.frames[-1] == built.site.frames[-1] for one in plan.scene.loaders):
        raise Cannot("the same call builds other loaders, whose samples are others", *place)
    _require_samples_only(plan)
    folder = str(value) if value else _folder(built)
    new = f'{imported(plan, code, "bake")}({code.source(dataset)}, "{folder}")'
    plan.replace(code, dataset, new, f"the dataset is baked into {folder}")
    plan.remark(
        f"bake: the first run writes all samples to {folder}, in the folder it is started in, "
        "before it trains; a run with another dataset, or other code of it, ends with an error that says so"
    )


def _folder(built: Built) -> str:
    """``scan-windows.baked`` of a ScanWindows."""
    name = str((built.settings.get("dataset") or {}).get("inner_class") or "dataset")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower() + ".baked"


def _require_samples_only(plan: Plan) -> None:
    """Raises Cannot where the dataset is asked for more than samples; ``bake`` refuses random ones itself."""
    for other in plan.scene.codes(".dataset."):
        for node in other.nodes(ast.Attribute):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "dataset":
                words = "more than its samples is asked of the loader's dataset here"
                raise Cannot(words, str(other.path), other.line(node))
