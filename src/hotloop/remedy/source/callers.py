"""Who called whom: by the frames of the run, else by the only call there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import libcst as cst

from hotloop.measure.places import Frame
from hotloop.remedy.source.code import Code, Function, last_name
from hotloop.remedy.source.scene import Cannot, Scene

#: Expressions that may stand for a part of theirs.
_MAY_BE: Final = (cst.IfExp, cst.BooleanOperation, cst.NamedExpr, cst.Lambda)


class Callers:
    """The frames of one call of the run, outermost first."""

    def __init__(self, scene: Scene, frames: Sequence[Frame]) -> None:
        self._scene, self._frames = scene, frames

    def caller(
        self, code: Code, function: Function, at: int | None
    ) -> tuple[Code, cst.Call, int | None] | None:
        """The call that a function ran from: by the frames, else the only one in all files."""
        frames = [at] if at is not None and self._is(at, code, function) else self.through(function, code)
        if len(frames) == 1 and frames[0]:
            above = frames[0] - 1
            frame = self._frames[above]
            outer = self._scene.code(frame.file)
            call = outer.call_at(frame.line, frame.col, name=self._called(code, function))
            if call is not None and last_name(call.func) == self._called(code, function):
                return outer, call, above
        return self._only_call(code, function)

    def _called(self, code: Code, function: Function) -> str:
        owner = code.above(function, cst.ClassDef) if function.name.value == "__init__" else None
        return owner.name.value if owner is not None else function.name.value

    def _only_call(self, code: Code, function: Function) -> tuple[Code, cst.Call, int | None] | None:
        name = self._called(code, function)
        found = []
        for file in self._scene.files():
            try:
                other = self._scene.code(file)
            except Cannot:
                continue
            found += [(other, call) for call in other.nodes(cst.Call) if last_name(call.func) == name]
        return (*found[0], self.frame_of(*found[0])) if len(found) == 1 else None

    def through(self, function: Function, code: Code) -> list[int]:
        """The frames that ran a function."""
        return [at for at in range(len(self._frames)) if self._is(at, code, function)]

    def _is(self, at: int, code: Code, function: Function) -> bool:
        frame = self._frames[at]
        if Path(frame.file) != code.path or frame.func.rpartition(".")[2] != function.name.value:
            return False
        first = min([code.line(function), *(code.line(d) for d in function.decorators)])
        return frame.func_line in (first, code.line(function.name))

    def frame_of(self, code: Code, node: cst.CSTNode) -> int | None:
        """The frame in whose function a node stands, if there is one."""
        function = code.function_of(node)
        if function is None:
            return None
        found = self.through(function, code)
        return found[0] if len(found) == 1 else None

    def shared(self, code: Code, function: Function, at: int | None) -> bool:
        """Whether another loader was built through this function, from another place."""
        through = [at] if at is not None and self._is(at, code, function) else self.through(function, code)
        if len(through) != 1 or not through[0]:
            return False
        mine = self._frames[through[0] - 1]
        for other in self._scene.loaders:
            frames = other.site.frames
            inside = Callers(self._scene, frames).through(function, code)
            if any(i and (frames[i - 1].line, frames[i - 1].col) != (mine.line, mine.col) for i in inside):
                return True
        return False


def only_caller(scene: Scene, code: Code, function: Function) -> tuple[Code, cst.Call] | None:
    """The call of a function where all of the user's files hold one only. Raises Cannot for several, and
    where it is called without its name.
    """
    name = function.name.value
    is_method = isinstance(code.parents.get(code.parents[function]), cst.ClassDef)
    unnamed = is_method and name.startswith("__") and name != "__init__"
    if unnamed or any("property" in last_name(one.decorator) for one in function.decorators):
        raise Cannot(f"from where {name} is called cannot be told", str(code.path), code.line(function))
    found = []
    for other in scene.codes(name):
        calls = [call for call in other.nodes(cst.Call) if last_name(call.func) == name]
        calls = [call for call in calls if _may_call(scene, other, call, is_method)]
        found += [(other, call) for call in calls]
        for call in calls:
            if other.above(call, cst.Lambda) is not None:
                raise Cannot(f"{name} is called in a lambda", str(other.path), other.line(call))
        for read in other.names():
            if read.value == name and _is_handed_on(other, read, is_method=is_method):
                raise Cannot(f"{name} is handed on as a value", str(other.path), other.line(read))
    if len(found) > 1:
        places = ", ".join(f"{other.path.name}:{other.line(call)}" for other, call in found[:3])
        words = f"{name}() is called from several places ({places})"
        raise Cannot(words, str(code.path), code.line(function))
    return found[0] if found else None


def _is_handed_on(code: Code, name: cst.Name, *, is_method: bool) -> bool:
    """Whether a function is read as a value: given to a call, kept in a container, by another name."""
    node: cst.CSTNode = name
    above = code.parents[node]
    if isinstance(above, cst.Attribute) and above.attr is name:
        if not is_method and not code.qualified(above):
            return False
        node, above = above, code.parents[above]
    while isinstance(above, _MAY_BE) and node is not getattr(above, "test", None):
        node, above = above, code.parents[above]
        if isinstance(above, cst.Call) and above.func is node:
            return True
    if isinstance(above, cst.Param):
        return above.default is node
    if isinstance(above, cst.Arg):
        return above.keyword is not name
    if isinstance(above, cst.Assign | cst.AnnAssign):
        return above.value is node
    return isinstance(above, cst.Element | cst.DictElement | cst.Return | cst.Yield | cst.ListComp)


def _may_call(scene: Scene, code: Code, call: cst.Call, is_method: bool) -> bool:
    """Whether a call may mean the user's method, or function, of its name: ``model.train()`` no function."""
    whole = code.qualified(call.func).lstrip(".")
    if whole:
        return scene.module(whole.rpartition(".")[0], code.path) is not None
    return is_method == isinstance(call.func, cst.Attribute)
