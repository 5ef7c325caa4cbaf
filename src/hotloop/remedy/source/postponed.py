"""What a loop keeps numbers in that are put off: each goes into a sum, a list or a name, or stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import libcst as cst

from hotloop.record.recording import Note
from hotloop.remedy.source import sums
from hotloop.remedy.source.code import last_name
from hotloop.remedy.source.in_loop import InLoop
from hotloop.remedy.source.kept import Kept
from hotloop.remedy.source.lists import appended, as_list
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scalars import Arithmetic, Kind, Read, literal_number
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.sums import as_sum

#: What to do by hand where a number is given to a call in every step, by how its name begins.
_BY_HAND: Final = {
    "set_postfix": "give the bar its words every N steps: if step % N == 0:",
    "set_description": "give the bar its words every N steps: if step % N == 0:",
    "update": "give it loss.detach(), let it add up on the device, and read it every N steps",
    "add_scalar": "log every N steps: if step % N == 0:",
    "log": "log every N steps: if step % N == 0:",
    "print": "print every N steps: if step % N == 0:",
}


class Postponed:
    """The names of one loop that numbers are put off in."""

    def __init__(self, view: InLoop, reads: Sequence[Read], config: Sequence[Note]) -> None:
        self._view = view
        self._held: dict[str, Kind | None] = {}  # names that a number is given to, once for all forms
        self._values = Arithmetic(view.code, reads, config, self._held)
        self._names: dict[str, Kept] = {}
        self._of: dict[int, str | Cannot] = {}
        for read in sorted(reads, key=lambda read: not isinstance(view.small(read.node), cst.Assign)):
            self._find(read)
        while waiting := [name for name in self._held if name not in self._names]:
            self._look(waiting[0], self._as_name)
        self._agree()

    def why_not(self, read: Read) -> Cannot | None:
        """Why a number is still read in the step; None where it is put off."""
        name = self._of[id(read)]
        return name if isinstance(name, Cannot) else self._names[name].cannot

    def write(self, plan: Plan) -> None:
        """Put all changes into the plan."""
        for name, kept in self._names.items():
            if kept.cannot is None:
                kept.write(plan, self._view.code, name)

    # -- what a number goes into -------------------------------------------------------------------------

    def _find(self, read: Read) -> None:
        """The name that the statement around a number keeps it in."""
        try:
            if read.why:
                raise self._view.cannot(read.why, read.node)
            self._of[id(read)] = self._into(read.node)
        except Cannot as cannot:
            self._of[id(read)] = cannot

    def _into(self, node: cst.BaseExpression) -> str:
        """The name that is added to, appended to or bound by the statement of a number. Raises Cannot."""
        statement = self._view.small(node)
        if isinstance(statement, cst.AugAssign) and isinstance(statement.target, cst.Name):
            return self._look(statement.target.value, self._as_sum)
        target = _only_target(statement)
        if target is not None and isinstance(statement, cst.Assign):
            names = {one.value for one in self._view.code.nodes(cst.Name, statement.value)}
            if target in names:
                return self._look(target, self._as_sum)
            kinds = self._values.kinds(statement.value)
            kind = next(iter(kinds)) if len(kinds) == 1 else None
            self._held[target] = kind if self._held.get(target, kind) == kind else None
            return target
        given = appended(statement)
        if given is not None:
            return self._look(given[0], self._as_list)
        raise self._needed(node, statement)

    def _needed(self, node: cst.BaseExpression, statement: cst.CSTNode) -> Cannot:
        """Why a number cannot wait where it is read."""
        code = self._view.code
        words = " ".join(code.source(node).split())
        if isinstance(statement, cst.AugAssign):
            target = code.source(statement.target)
            return self._view.cannot(f"{target} may be read by others while the loop goes on", node)
        call = code.above(node, cst.Call)
        while call is not None and isinstance(call.func, cst.Attribute) and code.holds(call.func, node):
            call = code.above(call, cst.Call)
        if call is None or not code.holds(statement, call):
            return self._view.cannot(f"{words} is read in every step", node)
        name = last_name(call.func)
        write = next((text for begin, text in _BY_HAND.items() if name.startswith(begin)), "")
        why = f"{' '.join(code.source(call.func).split())}() is given {words} in every step"
        return Cannot(why, str(code.path), code.line(node), write=write)

    def _look(self, name: str, how: Callable[[str], Kept]) -> str:
        if name not in self._names:
            self._names[name] = Kept()
            try:
                self._names[name] = how(name)
            except Cannot as cannot:
                self._names[name].cannot = cannot
        return name

    def _agree(self) -> None:
        """A name that stays leaves those that go with it as they are."""
        moved = True
        while moved:
            moved = False
            for kept in self._names.values():
                why = next((self._names[one].cannot for one in kept.along if self._names[one].cannot), None)
                if kept.cannot is None and why is not None:
                    kept.cannot = why
                    moved = True

    def _as_sum(self, name: str) -> Kept:
        return as_sum(self._view, self._values, name)

    def _as_list(self, name: str) -> Kept:
        return as_list(self._view, self._values, name)

    def _as_name(self, name: str) -> Kept:
        """``value = loss.item()``: read in sums and lists, each Nth step, or when the loop has ended."""
        view, kind, begun = self._view, self._held[name], []
        bindings = view.bindings(name)
        if kind is None:
            raise view.cannot(f"{name} is a whole number here and a broken one there", bindings[0])
        kept = Kept(kind=kind)
        for bound in bindings:
            value, statement = view.given(bound), view.small(bound)
            if view.steps(bound) and _only_target(statement) == name and self._values.kinds(value):
                if kind == "int" and not self._values.whole(value):
                    raise view.cannot(f"{name} may not stay a whole number", bound)
                begun.append(bound)
                kept.texts += self._values.bound(value, kind)
                kept.along |= self._values.held_in(value)
            elif view.grows(bound) or view.steps(bound) or literal_number(value) != kind:
                raise view.cannot(f"{name} is also bound here", bound)
        for node in view.accesses(name):
            if not view.steps(node) or view.rare(node) is not None or view.in_end(node):
                if sums.is_read(view, name, node):
                    kept.texts.append((node, f"{kind}({name})"))
                continue
            if not any(view.runs_before(bound, node) for bound in begun):
                raise view.cannot(f"{name} may be the number of a step before here", node)
            try:
                kept.along.add(self._into(node))
            except Cannot:
                raise self._needed(node, view.small(node)) from None
        return kept


def _only_target(statement: cst.CSTNode) -> str | None:
    """The name that a plain assignment gives a value."""
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0].target
    return target.value if isinstance(target, cst.Name) else None
