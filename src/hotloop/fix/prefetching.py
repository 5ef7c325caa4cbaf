"""The training loop put behind ``hotloop.feed.DevicePrefetcher``, where all of a batch goes to the device."""

from __future__ import annotations

import ast
from typing import Any, Final

from hotloop.fix.feeds import imported
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot
from hotloop.fix.sources import shown
from hotloop.fix.waiting import loop_of
from hotloop.record import rows as row
from hotloop.source.nodes import argument, last_name, literal, parts_of, root_of, targets_of, text_of

#: What hands on one item of its first argument for each of its own.
_AROUND: Final = frozenset(["enumerate", "tqdm"])
#: What a name may not stand for: taken on between loops, or shown as it goes.
_PASSES: Final = frozenset(["iter", "zip", "islice", "chain", "cycle", "map", "filter", *_AROUND])
#: What is asked of a tensor wherever it is.
_ANYWHERE: Final = frozenset(
    ["shape", "size", "dim", "ndim", "dtype", "numel", "nelement", "is_floating_point"]
)
_ASKS: Final = frozenset(["len", "isinstance", "is_tensor"])


def device_prefetch(plan: Plan, value: Any) -> None:
    """``for batch in DevicePrefetcher(loader, device)``; the ``.to(device)`` behind it then costs nothing."""
    loop = _Loop(plan)
    code, words = loop.code, loop.code.source(loop.given)
    if f"{words}.state_dict" in code.text.text:
        raise loop.cannot("the loader's state would be that of batches read ahead", loop.node)
    for name in loop.names(loop.target):
        loop.check(name, code.span(loop.node.body[0])[0])
    new = f"{imported(plan, code, 'DevicePrefetcher')}({words}, {loop.device})"
    plan.replace(code, loop.given, new, f"{words} → {new}")
    built = plan.scene.loaders
    if built and not plan.settings.get("pin_memory", built[0].settings.get("pin_memory")):
        plan.remark("only batches that are pinned are copied while a step computes: add pin-memory")
    if built and not plan.settings.get("num_workers", built[0].settings.get("num_workers")):
        plan.remark(
            "without workers the next batches are made before the step: what dataset and loop draw from one "
            "generator comes in another order"
        )


class _Loop:
    """The loop that drives training: what it goes over, what it moves, and where to."""

    def __init__(self, plan: Plan) -> None:
        self.code, node = loop_of(plan)
        if not isinstance(node, ast.For):
            raise self.cannot("the training loop is no plain for loop", node)
        self.node, self.target = node, node.target
        head = range(node.lineno, self.code.line(node.body[0]))
        fetched = [site.frames[-1] for site in plan.scene.sites(self._rows(plan, row.FETCH))]
        if not any(frame.file == str(self.code.path) and frame.line in head for frame in fetched):
            raise self.cannot("the training loop does not ask the loader itself", node)
        self.given = self._over(node.iter)
        self.device = self._one_device(plan)
        self._copied: set[str] = set()

    @staticmethod
    def _rows(plan: Plan, kind: int) -> Any:
        rows = plan.scene.process.rows
        return rows[rows["kind"] == kind]

    def cannot(self, why: str, node: ast.AST) -> Cannot:
        """What a change is not made for, with the line of a node."""
        return Cannot(why, str(self.code.path), self.code.line(node))

    def _over(self, node: ast.expr) -> ast.expr:
        """What the loop goes over, below what counts or shows progress."""
        while isinstance(node, ast.Call) and node.args and last_name(node.func) in _AROUND:
            if last_name(node.func) == "enumerate" and isinstance(self.target, ast.Tuple):
                self.target = self.target.elts[-1]
            node = node.args[0]
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(root_of(node), ast.Name):
            raise self.cannot(f"the loop goes over {self.code.source(node)}, not over a name", self.node)
        for one in self.code.bindings(node, node.id) if isinstance(node, ast.Name) else ():
            if isinstance(one.value, ast.Call) and last_name(one.value.func) in _PASSES:
                raise self.cannot(f"{one.name} is no loader, but goes over one", one.node)
        return node

    def _one_device(self, plan: Plan) -> str:
        """The device that the calls in the loop copy batches to, as they spell it."""
        rows = self._rows(plan, row.TRANSFER)
        found: dict[str, ast.Call] = {}
        for site in plan.scene.sites(rows[rows["obj"] == 1]):
            frame = site.frames[-1]
            call = self.code.call_at(frame.line, frame.col, site.end)
            inside = call is not None and frame.file == str(self.code.path)
            if call is not None and inside and self.code.holds(self.node, call) and self._device(call):
                found[self._device(call)] = call
        if not found:
            words = "no .to() or .cuda() in the training loop copied a batch to a device"
            raise self.cannot(words, self.node)
        if len(found) != 1:
            words = "the loop copies to several devices, or spells one in several ways"
            raise self.cannot(words, self.node)
        words, call = next(iter(found.items()))
        node = argument(call, "device", 0)
        if node is None or text_of(node) is not None:
            return words
        set_here = [last_name(one) for inner in self.code.under(self.node) for one in targets_of(inner)]
        if not isinstance(node, ast.Name | ast.Attribute) or last_name(node) in set_here:
            raise self.cannot(f"the device is {words}, no name that is there before the loop", call)
        return words

    def _device(self, call: ast.Call) -> str:
        """The device that ``.to()`` or ``.cuda()`` copies to; "" for any other call."""
        node = argument(call, "device", 0)
        if node is None:
            return '"cuda"' if last_name(call.func) == "cuda" else ""
        return self.code.source(node) if last_name(call.func) in ("to", "cuda") else ""

    # -- what the loop does with a batch -----------------------------------------------------------------

    def names(self, target: ast.expr) -> list[ast.Name]:
        """The names that a batch, or its parts, are handed out under. Raises Cannot for anything more."""
        found = list(parts_of(target))
        names = [one for one in found if isinstance(one, ast.Name)]
        if len(names) != len(found):
            raise self.cannot("what a batch is put into is no plain name", target)
        return names

    def check(self, name: ast.Name, start: int) -> None:
        """Raises Cannot where what is bound to a name may be read on the host, from a place on."""
        code, end = self.code, len(self.code.text.text)
        bound = code.bindings(name, name.id) if name.id != "_" else []
        for one in bound:
            statement = code.statement_of(one.node)
            again = isinstance(statement, ast.Assign) and self._runs_in_step(statement)
            behind = code.span(one.node)[0] >= code.span(self.node)[1]
            if statement is not None and (again or behind) and start <= code.span(statement)[0]:
                end = min(end, code.span(statement)[1])  # it is something else from there on
        for read in code.references(bound[0]) if bound else ():
            if start <= code.span(read)[0] < end and not self._is_fine(read):
                words = shown(code.source(code.statement_of(read) or read))
                raise self.cannot(f"{name.id} may be read on the host («{words}»)", read)

    def _runs_in_step(self, statement: ast.stmt) -> bool:
        """Whether a statement runs in every step: in the body of the loop, or under a ``with`` of it."""
        above = self.code.parents[statement]
        while isinstance(above, ast.With):
            above = self.code.parents[above]
        return above is self.node

    def _is_fine(self, read: ast.expr) -> bool:
        """Whether a read gives the same for a tensor that lies on the device already."""
        node, parents = read, self.code.parents
        above = parents[node]
        while isinstance(above, ast.Subscript) and above.value is node and literal(above.slice):
            node, above = above, parents[above]
        around = parents[above]
        if isinstance(above, ast.Attribute):
            if above.attr == "items" and isinstance(parents[around], ast.comprehension):
                return self._moves_each(parents[around])
            return above.attr in _ANYWHERE or (isinstance(around, ast.Call) and self._moves(around))
        if isinstance(above, ast.comprehension) and above.iter is node:
            return self._moves_each(above)
        if isinstance(above, ast.Assign) and len(above.targets) == 1 and self._runs_in_step(above):
            for inner in self.names(above.targets[0]):
                self.check(inner, self.code.span(above)[1])
            return True
        asks = isinstance(above, ast.Call) and last_name(above.func) in _ASKS
        return asks or isinstance(above, ast.Delete)

    def _moves(self, call: ast.Call) -> bool:
        """Whether a call copies to the device. Raises Cannot for a second copy: it would be the first one."""
        if self._device(call) != self.device or not isinstance(call.func, ast.Attribute):
            return False
        words = self.code.source(call.func.value)
        if words in self._copied:
            raise self.cannot(f"{words} is copied twice: the second would be the first itself", call)
        self._copied.add(words)
        return True

    def _moves_each(self, each: ast.AST) -> bool:
        """Whether a comprehension moves each value, or each that is a tensor."""
        made = self.code.parents[each]
        value = made.value if isinstance(made, ast.DictComp) else getattr(made, "elt", None)
        if isinstance(value, ast.IfExp) and isinstance(value.orelse, ast.Name):
            value = value.body
        return isinstance(value, ast.Call) and self._moves(value)
