"""Advice in the words of the library that builds the loaders: its users call no DataLoader."""

from __future__ import annotations

import re
from dataclasses import replace

from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.source.written import spelled_by


def in_framework_names(finding: Finding, steps: Steps) -> Finding:
    """The finding, the loader's arguments named as a framework that builds the loader takes them."""
    driving = steps.train_loader()
    words = spelled_by(driving.by) if driving is not None else None
    if driving is None:
        return finding
    if words is None:
        built = f"on the DataLoader that {driving.maker}() builds"
        if not driving.maker or finding.where != driving.where:
            return finding
        return replace(finding, advice=finding.advice.replace("on the DataLoader", built))
    others = {one.where for one in steps.loaders if one.by != driving.by} - {driving.where, None}
    if finding.where in others:  # built by the user's own code
        return finding
    names = {**words.names, **(words.evaluation if finding.id == "cadence/evaluation" else {})}
    advice = re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], finding.advice)
    advice = advice.replace("on the DataLoader", f"in {words.holder}")
    return replace(finding, advice=advice)
