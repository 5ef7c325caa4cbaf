"""Finds every rule by its folder: a new rule is one file in ``rules/<family>/`` and its page in
docs/rules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hotloop.audit.tree import Tree
from hotloop.findings import Finding


@dataclass(frozen=True, kw_only=True)
class RuleEntry:
    """One static rule: the public id of what it finds, and its function."""

    id: str
    check: Callable[[Tree], Iterable[Finding]]


@lru_cache(maxsize=1)
def rules() -> tuple[RuleEntry, ...]:
    """Every rule, sorted by id."""
    folder = Path(__file__).parent / "rules"
    files = sorted(path for path in folder.glob("*/*.py") if not path.name.startswith("_"))
    return tuple(_entry(f"hotloop.audit.rules.{path.parent.name}.{path.stem}") for path in files)


def _entry(module_name: str) -> RuleEntry:
    module: Any = importlib.import_module(module_name)
    return RuleEntry(id=module.ID, check=module.check)
