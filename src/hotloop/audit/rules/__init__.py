"""Every static rule by the id of what it finds: a file for one family or two, each with its ``RULES``."""

from __future__ import annotations

from typing import Final

from hotloop.audit.patterns import Rule
from hotloop.audit.rules import cadence, config, device, host, input, memory, numerics, transfer

RULES: Final[dict[str, Rule]] = {
    rule_id: family.RULES[rule_id]
    for family in (cadence, config, device, host, input, memory, numerics, transfer)
    for rule_id in family.RULES
}
