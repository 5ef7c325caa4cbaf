"""Every finding id with its home."""

from __future__ import annotations

from typing import Final

from hotloop.findings import about_batches, about_computing
from hotloop.findings.finding import Entry

ENTRIES: Final[dict[str, Entry]] = {**about_batches.ENTRIES, **about_computing.ENTRIES}
