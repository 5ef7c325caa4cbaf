"""The training loop put behind ``hotloop.feed.DevicePrefetcher``, where all of a batch goes to the device.

``device-prefetch`` reads batches ahead, ``ship-uint8`` has floats travel as bytes: one call does both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import libcst as cst

from hotloop.record import rows as row
from hotloop.remedy.source.calls import sites_of
from hotloop.remedy.source.code import Code, argument, has_spread, is_self, last_name
from hotloop.remedy.source.feeds import imported
from hotloop.remedy.source.follow import Follower
from hotloop.remedy.source.loaders import call_of
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import bound_to_self, chain_of, text_of, value_of

#: What hands on one item of its first argument for each of its own.
_AROUND: Final = frozenset(["enumerate", "tqdm"])
#: What a name may not stand for: taken on between loops, or shown as it goes.
_PASSES: Final = frozenset(
    ["iter", "enumerate", "tqdm", "zip", "islice", "chain", "cycle", "map", "filter", "DevicePrefetcher"]
)
#: What is asked of a tensor wherever it is.
_ANYWHERE: Final = frozenset(
    ["shape", "size", "dim", "ndim", "dtype", "numel", "nelement", "is_floating_point"]
)
#: Loaders whose workers ``as_bytes`` knows.
_CARRY: Final = frozenset(["torch.utils.data.dataloader.DataLoader", "hotloop.feed.loader.Loader"])
#: Names followed from the loop to the loader's call.
_DEEP: Final = 8
_FLOATS: Final = frozenset(["float32", "float64"])
_BY_HAND: Final = (
    "return uint8 from the dataset and convert on the device, which may round otherwise: "
    "x = x.to(device, non_blocking=True).float().div_(255)"
)
_COMPREHENSIONS: Final = (cst.ListComp, cst.DictComp, cst.GeneratorExp, cst.SetComp)


def device_prefetch(plan: Plan, value: Any) -> None:
    """``for batch in DevicePrefetcher(loader, device)``; the ``.to(device)`` behind it then costs nothing."""
    loop = _Loop(plan)
    words = loop.code.source(loop.given)
    if f"{words}.state_dict" in loop.code.text.text:
        raise Cannot("the loader's state would be that of batches read ahead", str(loop.code.path), loop.line)
    wanted = "ship-uint8" in plan.asked and not _why_no_bytes(plan)
    as_bytes = wanted and not _why_another(plan, loop.code, loop.given)
    _go_over(plan, loop, ", as_bytes=True" if as_bytes else "")
    built = plan.scene.loaders
    if built and not plan.settings.get("pin_memory", built[0].settings.get("pin_memory")):
        plan.remark("only batches that are pinned are copied while a step computes: add pin-memory")
    if built and not plan.settings.get("num_workers", built[0].settings.get("num_workers")):
        plan.remark(
            "without workers the next batches are made before the step: what dataset and loop draw from one "
            "generator comes in another order"
        )


def ship_uint8(plan: Plan, value: Any) -> None:
    """``as_bytes=True`` of the loop's ``DevicePrefetcher``, or of a new one that reads nothing ahead."""
    code, node = _training_loop(plan)
    why = _why_no_bytes(plan)
    if why:
        raise Cannot(why, str(code.path), code.line(node), write=_BY_HAND)
    there = _prefetcher_of(code, node)
    loop = _Loop(plan) if there is None else None
    given = loop.given if loop is not None else argument(there, "loader", 0) if there is not None else None
    why = _why_another(plan, code, given)
    if why:
        raise Cannot(why, str(code.path), code.line(node), write=_BY_HAND)
    if there is not None:
        plan.keyword(code, there, "as_bytes", "True")
    elif loop is not None:
        ahead = any(change.remedy == "device-prefetch" for change in plan.changes)
        _go_over(plan, loop, f"{'' if ahead else ', depth=0'}, as_bytes=True")


def _go_over(plan: Plan, loop: _Loop, more: str) -> None:
    """Put the loop's loader behind a prefetcher, where the loop reads nothing of a batch on the host."""
    code, words = loop.code, loop.code.source(loop.given)
    for name in loop.fields():
        loop.check(name, code.span(loop.statements[0])[0])
    new = f"{imported(plan, code, 'DevicePrefetcher')}({words}, {loop.device}{more})"
    plan.replace(code, loop.given, new, f"{words} → {new}")
    if loop.reads_parts:
        plan.remark("all of a batch is copied, what the loop does not read too")


def _why_no_bytes(plan: Plan) -> str:
    """Why the batches of the driving loader cannot travel as bytes, "" where they can."""
    built = next(iter(plan.scene.loaders), None)
    if built is None or built.id != plan.scene.lead:
        return "the loader that drives training is not built in your code"
    if str(built.settings.get("class")).replace(":", ".") not in _CARRY:
        return f"the loader is a {built.kind}, which may go through its batches in a way of its own"
    if not plan.settings.get("num_workers", built.settings.get("num_workers")):
        return "without workers nothing is carried from one process to another: add num-workers"
    if plan.settings.get("persistent_workers", built.settings.get("persistent_workers")):
        return "persistent_workers=True: the batches of workers that stay travel as they are"
    if (built.settings.get("dataset") or {}).get("class") in ("CachedDataset", "Baked"):
        return "the dataset gives whole batches"
    seen = (field for note in plan.scene.process.notes.get("batch", ()) for field in note.get("fields", ()))
    if not any(str(field.get("dtype")).removeprefix("torch.") in _FLOATS for field in seen):
        return "no field of float32 or float64 was seen in a batch"
    return ""


def _why_another(plan: Plan, code: Code, given: cst.BaseExpression | None) -> str:
    """Why what the loop goes over may be no DataLoader, which ``as_bytes`` refuses; "" where it is one."""
    follower = Follower(plan.scene, ())
    where, node = code, given
    for _ in range(_DEEP):
        if isinstance(node, cst.Name):
            bound = list({id(one.node): one.node for one in where.assignments(node, node.value)}.values())
            if len(bound) == 1 and isinstance(bound[0], cst.Param):
                passed = follower.passed(where, bound[0], None)
                where, node = passed[:2] if passed is not None else (where, None)
            else:
                node = value_of(where, bound[0]) if len(bound) == 1 else None
        elif isinstance(node, cst.Attribute) and is_self(node.value):
            owner = where.above(node, cst.ClassDef)
            values = list(bound_to_self(where, owner, node.attr.value)) if owner is not None else []
            node = values[0] if len(values) == 1 else None
        else:
            break
    try:
        _, call, _ = call_of(plan, plan.scene.loaders[0])
    except Cannot as cannot:
        return str(cannot)
    words = code.source(given) if given is not None else "what is passed by * or **"
    return "" if node is call else f"{words} may be something other than the DataLoader itself"


def _training_loop(plan: Plan) -> tuple[Code, cst.For]:
    place = plan.scene.loop
    if place is None:
        raise Cannot("the training loop is not known")
    code = plan.scene.code(place.file)
    found = [node for node in code.nodes(cst.For) if code.line(node) == place.line]
    if len(found) != 1 or not isinstance(found[0].body, cst.IndentedBlock) or found[0].asynchronous:
        raise Cannot("the training loop is no plain for loop", str(code.path), place.line)
    return code, found[0]


def _prefetcher_of(code: Code, loop: cst.For) -> cst.Call | None:
    """The ``DevicePrefetcher(...)`` in the head of a loop."""
    node: cst.BaseExpression = loop.iter
    while isinstance(node, cst.Call) and node.args:
        if code.qualified(node.func) == "hotloop.feed.DevicePrefetcher":
            return node
        if last_name(node.func) not in _AROUND:
            break
        node = node.args[0].value
    return None


class _Loop:
    """The loop that drives training: what it goes over, what it moves, and where to."""

    def __init__(self, plan: Plan) -> None:
        self.code, self.node = _training_loop(plan)
        place = plan.scene.loop
        assert place is not None
        self.line = place.line
        body = self.node.body.body
        self.statements = list(_flat(body))
        head = range(place.line, self.code.line(body[0]))
        fetched = [site.frames[-1] for site in sites_of(plan, row.FETCH)]
        if not any(frame.file == place.file and frame.line in head for frame in fetched):
            raise self._cannot("the training loop does not ask the loader itself")
        self.target: cst.CSTNode = self.node.target
        self.given = self._over(self.node.iter)
        self._moves = self._moved(plan)
        self.device = self._one_device()
        self.reads_parts = False
        self._copied: set[tuple[int, str]] = set()  # what is copied, and within which comprehension

    def _cannot(self, why: str, node: cst.CSTNode | None = None) -> Cannot:
        line = self.line if node is None else self.code.line(node)
        return Cannot(why, str(self.code.path), line)

    def _over(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What the loop goes over, below what counts or shows progress."""
        while isinstance(node, cst.Call) and node.args and not has_spread(node):
            name = last_name(node.func)
            if name == "DevicePrefetcher":
                raise self._cannot("the loop goes over a DevicePrefetcher already")
            if name not in _AROUND or node.args[0].keyword is not None:
                break
            if name == "enumerate":
                elements = self.target.elements if isinstance(self.target, cst.Tuple) else ()
                if len(elements) != 2:
                    raise self._cannot("what the loop counts and what it is handed cannot be told apart")
                self.target = elements[1].value
            node = node.args[0].value
        if not isinstance(chain_of(node)[0], cst.Name) or not isinstance(node, cst.Name | cst.Attribute):
            raise self._cannot(f"the loop goes over {self.code.source(node)}, not over a name")
        if isinstance(node, cst.Name):
            for one in self.code.assignments(node, node.value):
                value = value_of(self.code, one.node)
                passes = isinstance(value, cst.Call) and last_name(value.func) in _PASSES
                passes = passes or isinstance(self.code.parents.get(one.node), cst.AsName)
                if passes or isinstance(value, cst.GeneratorExp):
                    raise self._cannot(f"{node.value} is no loader, but goes over one", one.node)
        return node

    # -- where batches go --------------------------------------------------------------------------------

    def _moved(self, plan: Plan) -> list[cst.Call]:
        """The calls in the loop that copied to the device."""
        rows = plan.scene.process.rows
        found: dict[int, cst.Call] = {}
        for site in plan.scene.sites(rows[(rows["kind"] == row.TRANSFER) & (rows["obj"] == 1)]):
            frame = site.frames[-1]
            call = None
            if frame.file == str(self.code.path):
                call = self.code.call_at(frame.line, frame.col, site.end)
            if call is not None and last_name(call.func) in ("to", "cuda") and self._holds(call):
                found[id(call)] = call
        if not found:
            raise self._cannot("no .to() or .cuda() in the training loop copied a batch to a device")
        return list(found.values())

    def _holds(self, node: cst.CSTNode) -> bool:
        return self.code.holds(self.node, node)

    def _one_device(self) -> str:
        found = {self._device(call): call for call in self._moves}
        if len(found) != 1:
            raise self._cannot("the loop copies to several devices, or spells one in several ways")
        words, call = next(iter(found.items()))
        node = self._where(call)
        if node is None or text_of(node) is not None:
            return words
        root, _ = chain_of(node)
        if not isinstance(root, cst.Name) or not isinstance(node, cst.Name | cst.Attribute):
            raise self._cannot(f"the device is {words}, no name that is there before the loop", call)
        bound = [one.node for one in self.code.assignments(node, root.value)]
        targets = [one.target for one in self.code.nodes(cst.AssignTarget, self.node)]
        if not bound or any(map(self._holds, bound)) or any(words == self.code.source(t) for t in targets):
            raise self._cannot(f"{words} is set in the loop", call)
        return words

    def _where(self, call: cst.Call) -> cst.BaseExpression | None:
        return argument(call, "device", 0)

    def _device(self, call: cst.Call) -> str:
        node = self._where(call)
        if node is None and last_name(call.func) == "cuda":
            return '"cuda"'
        return self.code.source(node) if node is not None else ""

    # -- what the loop does with a batch -----------------------------------------------------------------

    def fields(self) -> list[cst.Name]:
        """The names that a batch, or its parts, are handed out under."""
        names = _names(self.target)
        if names is None:
            raise self._cannot("what a batch is put into is no plain name")
        return names

    def check(self, name: cst.Name, start: int) -> None:
        """Raises Cannot where what is bound to a name may be read on the host, from a place on."""
        if name.value == "_":
            return
        known = self.code.assignments(name, name.value)
        behind = self.code.span(self.node)[1]
        later = [at for one in known if (at := self.code.span(one.node)[0]) >= behind]
        end = min(later, default=len(self.code.text.text))
        for statement in self.statements:
            inside = [one.node for one in known if self.code.holds(statement, one.node)]
            first, last = self.code.span(statement)
            if first >= start and inside and isinstance(statement, cst.SimpleStatementLine):
                end = last  # bound to something else from there on
                break
        for node in sorted({_root(one.node) for k in known for one in k.references}, key=self.code.begin):
            if start <= self.code.span(node)[0] < end:
                self._read(name, node)

    def _read(self, name: cst.Name, node: cst.CSTNode, within: int = 0) -> None:
        read = node
        parents = self.code.parents
        above = parents[node]
        while isinstance(above, cst.Subscript) and above.value is node and _is_plain(above):
            node, above = above, parents[above]
            self.reads_parts = True
        if isinstance(above, cst.Attribute) and above.value is node:
            around = parents[above]
            if above.attr.value in _ANYWHERE:
                return
            if isinstance(around, cst.Call) and around.func is above:
                if above.attr.value in ("to", "cuda") and self._device(around) == self.device:
                    self._copy(node, within)
                    return
                if above.attr.value == "items" and self._each(parents[around], around):
                    return
        elif self._each(above, node) or self._asked(above, node) or isinstance(above, cst.Del):
            return
        elif isinstance(above, cst.Assign) and above.value is node and len(above.targets) == 1:
            names = _names(above.targets[0].target)
            statement = self.code.statement_of(above)
            if names is not None and statement in self.statements:
                for inner in names:
                    self.check(inner, self.code.span(above)[1])
                return
        words = " ".join(self.code.source(self.code.statement_of(read) or read).split())
        words = words if len(words) <= 60 else words[:57] + "..."
        raise self._cannot(f"{name.value} may be read on the host («{words}»)", read)

    def _copy(self, node: cst.CSTNode, within: int) -> None:
        """Raises Cannot for a second copy: it would be the first one, with what was changed in that."""
        key = within, self.code.source(node)
        if key in self._copied:
            raise self._cannot(f"{key[1]} is copied twice: the second would be the first itself", node)
        self._copied.add(key)

    def _asked(self, above: cst.CSTNode, node: cst.CSTNode) -> bool:
        """``len(x)``, ``isinstance(x, ...)``, and the other side of ``... if isinstance(x, ...) else x``."""
        if isinstance(above, cst.Arg):
            call = self.code.parents[above]
            return isinstance(call, cst.Call) and last_name(call.func) in ("len", "isinstance", "is_tensor")
        test = above.test if isinstance(above, cst.IfExp) and above.orelse is node else None
        if not isinstance(test, cst.Call):
            return False
        kind = [self.code.source(arg.value) for arg in test.args]
        kinds = {"isinstance": (["torch.Tensor"], ["Tensor"]), "is_tensor": ([],)}
        wanted = kinds.get(last_name(test.func), ())
        return kind[:1] == [self.code.source(node)] and kind[1:] in wanted

    def _each(self, above: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether it is gone through by a comprehension that moves each of its values."""
        if not isinstance(above, cst.CompFor) or above.iter is not node:
            return False
        target: cst.CSTNode = above.target
        base = node
        if isinstance(node, cst.Call):  # .items()
            base = node.func.value if isinstance(node.func, cst.Attribute) else node
            elements = target.elements if isinstance(target, cst.Tuple) else ()
            if len(elements) != 2:
                return False
            target = elements[1].value
        outer = self.code.parents[above]
        names = _names(target)
        if names is None or not isinstance(outer, _COMPREHENSIONS):
            return False
        self._copy(base, 0)
        for name in names:
            known = self.code.assignments(name, name.value)
            for read in {_root(one.node) for k in known for one in k.references}:
                self._read(name, read, id(above))
        return True


def _flat(statements: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    """The statements that run one after the other, those under a ``with`` too."""
    for statement in statements:
        if isinstance(statement, cst.With) and isinstance(statement.body, cst.IndentedBlock):
            yield from _flat(statement.body.body)
        else:
            yield statement


def _names(target: cst.CSTNode) -> list[cst.Name] | None:
    """The names of a target; None where it is anything more."""
    if isinstance(target, cst.Name):
        return [target]
    if not isinstance(target, cst.Tuple | cst.List):
        return None
    found: list[cst.Name] = []
    for element in target.elements:
        inner = _names(element.value) if isinstance(element, cst.Element) else None
        if inner is None:
            return None
        found += inner
    return found


def _root(node: cst.CSTNode) -> cst.CSTNode:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def _is_plain(node: cst.Subscript) -> bool:
    """Whether a subscript is one key or number."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString | cst.Integer)
