"""From an argument of a call to the place where its value is written, along the frames of the run."""

from __future__ import annotations

import ast

from hotloop.fix.scene import Cannot
from hotloop.fix.targets import Absent as Absent
from hotloop.fix.targets import Entry as Entry
from hotloop.fix.targets import Literal as Literal
from hotloop.fix.targets import Loaded
from hotloop.fix.targets import Target as Target
from hotloop.fix.walk import DEPTH, Walk, position_of
from hotloop.source.code import Code
from hotloop.source.nodes import argument, has_spread
from hotloop.torch_facts import LOADER_POSITIONS


class Follower(Walk):
    """Follows the arguments of the calls of a run."""

    def argument(self, code: Code, call: ast.Call, at: int | None, name: str, given: bool) -> Target:
        """Where a loader's argument is written. ``given``: the run gave it. Raises Cannot."""
        position = LOADER_POSITIONS.index(name) if name in LOADER_POSITIONS else None
        expression = argument(call, name, position)
        if expression is not None:
            return self.expression(code, expression, at)
        found = self.spread_in(code, call, at, name)
        if found is not None:
            return found
        if given and has_spread(call):
            raise Cannot(f"{name} is passed on by * or **", str(code.path), code.line(call))
        return Absent(code, call, name)

    def expression(self, code: Code, node: ast.expr, at: int | None) -> Target:
        """Where the value of an expression is written. Raises Cannot."""
        return self.value_at(code, node, (), at)

    def frame_of(self, code: Code, node: ast.AST) -> int | None:
        """The frame in whose function a node stands."""
        return self.callers.frame_of(code, node)

    def passed(self, code: Code, param: ast.arg, at: int | None) -> tuple[Code, ast.expr, int | None] | None:
        """What the caller gave for a parameter, and where."""
        function = code.function_of(param)
        caller = self.callers.caller(code, function, at) if function is not None else None
        if function is None or caller is None:
            return None
        outer, call, above = caller
        given = argument(call, param.arg, position_of(code, function, param))
        return (outer, given, above) if given is not None else None

    def loaded(self, code: Code, node: ast.expr, at: int | None) -> Loaded | None:
        """What an expression reads of a configuration, if it does."""
        self.left = DEPTH  # each is a question of its own
        try:
            found = self.keys(code, node, (), at)
        except Cannot:
            return None
        return found if isinstance(found, Loaded) else None
