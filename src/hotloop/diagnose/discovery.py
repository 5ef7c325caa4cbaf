"""Finds every rule by its folder: a new rule is a function under ``@rule`` in ``rules/<family>/`` (or
an entry of a module's ``RULES``), and its page in docs/rules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hotloop.diagnose.evidence import Evidence, Rule
from hotloop.findings import Finding


@dataclass(frozen=True, kw_only=True)
class RuleEntry:
    """One rule: its public id and its function.

    Of a ``costed`` rule, findings that cost nothing (hidden work) are not reported. A rule that speaks of
    rates is silent about a run too short for one, unless it speaks of ``short_runs`` as well.
    """

    id: str
    check: Rule
    costed: bool = False
    short_runs: bool = False

    def __call__(self, evidence: Evidence) -> Iterable[Finding]:
        """Run the rule."""
        return self.check(evidence) if self.short_runs or evidence.enough else ()


def rule(finding_id: str, *, costed: bool = False, short_runs: bool = False) -> Callable[[Rule], RuleEntry]:
    """Make a function over the evidence the rule of a finding."""
    return lambda check: RuleEntry(id=finding_id, check=check, costed=costed, short_runs=short_runs)


@lru_cache(maxsize=1)
def rules() -> tuple[RuleEntry, ...]:
    """Every rule, sorted by id."""
    folder = Path(__file__).parent / "rules"
    files = (path for path in folder.glob("*/*.py") if not path.name.startswith("_"))
    names = (f"hotloop.diagnose.rules.{path.parent.name}.{path.stem}" for path in files)
    by_id: dict[str, RuleEntry] = {}
    for name in names:
        module = vars(importlib.import_module(name))
        found = [*module.values(), *module.get("RULES", ())]
        by_id |= {entry.id: entry for entry in found if isinstance(entry, RuleEntry)}
    return tuple(by_id[name] for name in sorted(by_id))
