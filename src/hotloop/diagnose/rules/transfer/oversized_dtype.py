"""``transfer/oversized-dtype``: images are shipped as floats that were bytes before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import dataset_text
from hotloop.diagnose.transfers import copies, costliest
from hotloop.findings import Finding

ID = "transfer/oversized-dtype"
COSTED = True

#: Bytes made floats, read from the dataset's own source.
_WIDENS = re.compile(
    r"/\s*255|\bToTensor\(|\bto_tensor\(|convert_image_dtype|\bto_dtype\(.*scale=True|uint8.*\.(float|astype)\(|\.float\(\)\s*/"
)
_WIDTH = {"float32": 4, "torch.float32": 4, "float64": 8, "torch.float64": 8}


def check(evidence: Evidence) -> Iterator[Finding]:
    """Needs an image-shaped float field, a dataset whose source widens bytes, and copies that cost time."""
    found = copies(evidence)
    loader = evidence.steps.train_loader()
    if found is None or loader is None:
        return
    fields = [field for field in loader.batch_fields if _is_image(field)]
    if not fields or not _WIDENS.search(dataset_text(evidence, loader)):
        return
    total = sum(float(field.get("bytes") or 0) for field in loader.batch_fields)
    wide = sum(float(field.get("bytes") or 0) for field in fields)
    saved = sum(
        float(field.get("bytes") or 0) * (1 - 1 / _WIDTH[str(field.get("dtype"))]) for field in fields
    )
    if total <= 0 or wide < evidence.limits.large_copy_bytes:
        return
    cost = found.seconds(found.sites) * saved / total
    dtype = str(fields[0].get("dtype")).removeprefix("torch.")
    yield Finding(
        id=ID,
        message=(
            f"Images travel to the device as {dtype} ({units.size(wide)} per batch) though they were bytes: "
            f"{_WIDTH[dtype]} times what is needed."
        ),
        advice=(
            "Return uint8 from the dataset, copy, and then convert and normalize on the device: "
            "x = x.to(device, non_blocking=True).float().div_(255). Or let the floats travel as bytes, the "
            "same to the last bit: hotloop.feed.DevicePrefetcher(loader, device, as_bytes=True)."
        ),
        evidence=(
            f"field {fields[0].get('path')}: {dtype} {list(fields[0].get('shape') or ())}",
            "the dataset's source turns uint8 into floats",
            f"{units.size(saved)} of {units.size(total)} per batch would not have to be shipped",
        ),
        cost_s_per_step=cost,
        cost_ci95=costs.phase_interval(evidence.steps, cost, "transfer"),
        where=costliest(found.sites).place,
        remedies=("ship-uint8",),
        data={"saved_bytes": saved},
    )


def _is_image(field: Mapping[str, Any]) -> bool:
    """A float field with channels and two large sides."""
    shape = [int(side) for side in field.get("shape") or ()]
    if str(field.get("dtype")) not in _WIDTH or len(shape) < 3:
        return False
    sides = sorted(shape[-3:]) if len(shape) >= 4 else sorted(shape)
    return sides[0] in (1, 3, 4) and sides[-2] >= 16
