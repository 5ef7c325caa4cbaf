"""``device/``: what the device does, from its own samples and from stages the file times."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.findings import Finding
from hotloop.logs.log import REST, Log

_HOT = 0.30
_BUSY = 0.70
_POWER = 0.35
_MODULE = re.compile(r"stage|layer|block|module|fus|head|backbone|encoder|decoder|attn|attention|conv|neck")


def check(log: Log) -> Iterator[Finding]:
    """The stage that takes most; a device that is busy and draws little power."""
    stages = [stage for stage in log.stages if stage.name != REST]
    if len(stages) >= 4 and stages[0].share >= _HOT and _MODULE.search(stages[0].name):
        top = stages[0]
        found = log.column("stage:" + top.name)
        yield Finding(
            id="device/hot-module",
            message=f"{top.name[:1].upper()}{top.name[1:]} takes {units.share(top.share)} of the "
            f"{len(stages)} stages' time ({units.duration(top.s_per_step)}).",
            advice=f"Look at {top.name} first; the first three take "
            f"{units.share(sum(stage.share for stage in stages[:3]))} together.",
            evidence=tuple(
                f"{s.name}: {units.duration(s.s_per_step)} ({units.share(s.share)})" for s in stages[:4]
            ),
            where=log.at(found[0].columns["line"][0]) if found else None,
            data={"stage": top.name, "share": top.share},
        )
    yield from _low_intensity(log)


def _low_intensity(log: Log) -> Iterator[Finding]:
    busy, drawn = log.column("gpu_util"), log.column("power_ratio")
    if busy is None or drawn is None:
        return
    half = len(busy[1]) // 2
    used, power = float(np.nanmean(busy[1][half:])), float(np.nanmean(drawn[1][half:]))
    if half < 5 or used < _BUSY or power >= _POWER:
        return
    yield Finding(
        id="device/low-intensity",
        message=f"The device is busy {units.share(used)} of the time but draws {units.share(power)} of its "
        "power limit.",
        advice="Larger batches, fused kernels (torch.compile) or several runs on one device use it better.",
        evidence=(f"means of the second half of {len(busy[1]):,} samples",),
        where=log.at(busy[0].columns["line"][half]),
        data={"gpu_util": used, "power_ratio": power},
    )
