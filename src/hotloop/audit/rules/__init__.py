"""Every static rule by the id of what it finds: one file a family, each with its ``RULES``."""

from __future__ import annotations

from typing import Final

from hotloop.audit.patterns import Rule
from hotloop.audit.rules import (
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

RULES: Final[dict[str, Rule]] = {
    rule_id: family.RULES[rule_id]
    for family in (
        cadence, config, device, distributed, host, input, memory, numerics, transfer, trend
    )
    for rule_id in family.RULES
}  # fmt: skip
