"""Findings: their one shape, and for each public id its one home (title, advice, remedies, page)."""

from hotloop.findings.finding import Finding, Gain, Place, Severity

__all__ = ["Finding", "Gain", "Place", "Severity"]
