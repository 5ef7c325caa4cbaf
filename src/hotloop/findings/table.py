"""Every finding id with its home."""

from __future__ import annotations

from typing import Final

from hotloop.findings import (
    cadence,
    config,
    device,
    distributed,
    host,
    input,
    memory,
    numerics,
    transfer,
    trend,
)
from hotloop.findings.entry import Entry

ENTRIES: Final[dict[str, Entry]] = {
    **cadence.ENTRIES, **config.ENTRIES, **device.ENTRIES, **distributed.ENTRIES, **host.ENTRIES,
    **input.ENTRIES, **memory.ENTRIES, **numerics.ENTRIES, **transfer.ENTRIES, **trend.ENTRIES,
}  # fmt: skip
