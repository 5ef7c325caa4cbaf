"""Who called whom: by the frames of the run, else by the only call there is."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from hotloop.fix.scene import Scene
from hotloop.measure.places import Frame
from hotloop.source.code import Code
from hotloop.source.nodes import Function, last_name


class Callers:
    """The frames of one call of the run, outermost first."""

    def __init__(self, scene: Scene, frames: Sequence[Frame]) -> None:
        self._scene, self._frames = scene, frames

    def caller(
        self, code: Code, function: Function, at: int | None
    ) -> tuple[Code, ast.Call, int | None] | None:
        """The call that a function ran from: by the frames, else the only one in all files."""
        frames = [at] if at is not None and self._is(at, code, function) else self.through(function, code)
        name = _called(code, function)
        if len(frames) == 1 and frames[0]:
            above = frames[0] - 1
            frame = self._frames[above]
            outer = self._scene.code(frame.file)
            call = outer.call_at(frame.line, frame.col, name=name)
            if call is not None and last_name(call.func) == name:
                return outer, call, above
        found = [(other, call) for other in self._scene.codes(name) for call in other.calls(name)]
        return (*found[0], self.frame_of(*found[0])) if len(found) == 1 else None

    def through(self, function: Function, code: Code) -> list[int]:
        """The frames that ran a function."""
        return [at for at in range(len(self._frames)) if self._is(at, code, function)]

    def _is(self, at: int, code: Code, function: Function) -> bool:
        frame = self._frames[at]
        return Path(frame.file) == code.path and code.function_at(frame.func, frame.func_line) is function

    def frame_of(self, code: Code, node: ast.AST) -> int | None:
        """The frame in whose function a node stands, if there is one."""
        function = code.function_of(node)
        found = self.through(function, code) if function is not None else []
        return found[0] if len(found) == 1 else None


def _called(code: Code, function: Function) -> str:
    owner = code.class_of(function) if function.name == "__init__" else None
    return owner.name if owner is not None else function.name
