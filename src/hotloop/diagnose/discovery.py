"""Finds every rule by its folder: a new rule is one file in ``rules/<family>/`` and its page in
docs/rules.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hotloop.diagnose.evidence import Evidence, Rule
from hotloop.findings import Finding

#: How large a change the advice asks for; decides between findings of equal cost.
ARGUMENT, EDIT, OPPORTUNITY = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class RuleEntry:
    """One rule: its public id, its function, and the size of the change it advises.

    Of a ``costed`` rule, findings that cost nothing (hidden work) are not said.
    """

    id: str
    check: Rule
    effort: int = EDIT
    costed: bool = False

    def __call__(self, evidence: Evidence) -> Iterable[Finding]:
        """Run the rule."""
        return self.check(evidence)


@lru_cache(maxsize=1)
def rules() -> tuple[RuleEntry, ...]:
    """Every rule, sorted by id. A module may set ``EFFORT`` (one of the sizes above) and ``COSTED``."""
    folder = Path(__file__).parent / "rules"
    files = sorted(path for path in folder.glob("*/*.py") if not path.name.startswith("_"))
    return tuple(_entry(f"hotloop.diagnose.rules.{path.parent.name}.{path.stem}") for path in files)


def _entry(module_name: str) -> RuleEntry:
    module: Any = importlib.import_module(module_name)
    return RuleEntry(
        id=module.ID,
        check=module.check,
        effort=getattr(module, "EFFORT", EDIT),
        costed=getattr(module, "COSTED", False),
    )
