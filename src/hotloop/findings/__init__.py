"""Findings: their one shape, and for each public id its one home (title, advice, remedies, page)."""

from typing import Final

from hotloop.findings import about_batches, about_computing
from hotloop.findings.finding import SEVERITIES, Entry, Finding, Gain, Place, Severity

__all__ = ["ENTRIES", "SEVERITIES", "Entry", "Finding", "Gain", "Place", "Severity"]

#: Every finding id with its home.
ENTRIES: Final[dict[str, Entry]] = {**about_batches.ENTRIES, **about_computing.ENTRIES}
