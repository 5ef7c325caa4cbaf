"""What one name keeps numbers in that are put off: the changes to its places, if they can be made."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from hotloop.remedy.source import layout
from hotloop.remedy.source.code import Code
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scalars import Kind
from hotloop.remedy.source.scene import Cannot


@dataclass(kw_only=True)
class Kept:
    """A sum, a list or a plain name. ``along`` are names that are put off with it or not at all."""

    kind: Kind = "float"
    texts: list[tuple[cst.CSTNode, str]] = field(default_factory=list)
    spans: list[tuple[int, int, str, str]] = field(default_factory=list)  # other text, and what is said of it
    before: list[cst.CSTNode] = field(default_factory=list)  # what needs the numbers of a list
    behind: list[cst.CSTNode] = field(default_factory=list)
    along: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)
    cannot: Cannot | None = None

    def write(self, plan: Plan, code: Code, name: str) -> None:
        """Put the changes into the plan."""
        for node, text in self.texts:
            plan.replace(code, node, text, f"{' '.join(code.source(node).split())} → {text}")
        for start, end, text, says in self.spans:
            plan.rewrite(code, start, end, text, says)
        numbers = [f"{name}[:] = map({self.kind}, {name})"]
        for statement in self.before:
            layout.before(plan, code, statement, numbers)
        for statement in self.behind:
            layout.behind(plan, code, statement, numbers)
        for words in self.remarks:
            plan.remark(f"{plan.remedy}: {words}")
