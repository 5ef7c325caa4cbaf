"""Reads attention that is written by hand, backwards from the product of the weights with the values.

One shape is read, statement by statement within one block of one function:
``softmax(q @ k.transpose(-2, -1) * scale, masked) [dropped] @ v``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Final

from hotloop.diagnose.groups import shortened
from hotloop.fix.scene import Cannot
from hotloop.source.code import Code
from hotloop.source.flow import binds, writes
from hotloop.source.nodes import Function, argument, is_of_self, last_name
from hotloop.source.values import bound_to_self

_PRODUCTS: Final = frozenset(["torch.matmul", "torch.bmm"])
_LAST: Final = (["-2", "-1"], ["-1", "-2"], ["2", "3"], ["3", "2"])
_CASTS: Final = frozenset(["float", "to", "type_as", "type", "contiguous"])
_INFINITE: Final = re.compile(r"""-(math|torch|np|numpy|float)\.?\(?["']?inf["']?\)?|float\(["']-inf["']\)""")
_LARGE: Final = re.compile(r"-\d+e\d+|-\d{4,}\.?0*|.*finfo\(.*\)\.min")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """An expression that goes into the call, and the statement it was taken from."""

    node: ast.expr
    at: int


@dataclass(kw_only=True)
class Attention:
    """What was read."""

    query: Piece
    key: Piece
    value: ast.expr
    factors: list[tuple[str, Piece]] = field(default_factory=list)
    mask: Piece | None = None
    adds: bool = False  # the mask is added to the scores
    infinite: bool = True  # else it fills in a large negative number
    test: Piece | None = None  # what the mask hangs on
    dropout: ast.Call | None = None


def products(code: Code, function: Function) -> list[ast.expr]:
    """The matrix products of a function, without those of functions in it."""
    found = [one for one in code.nodes(ast.expr, function) if factors(code, one) is not None]
    return [one for one in found if code.function_of(one) is function]


def factors(code: Code, node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Both sides of a matrix product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if code.qualified(node.func) in _PRODUCTS and len(node.args) == 2:
        return node.args[0], node.args[1]
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("matmul", "bmm") and len(node.args) == 1:
        return (node.func.value, node.args[0]) if not code.qualified(node.func) else None
    return None


class Reader:
    """Reads backwards from a product to the queries and keys."""

    def __init__(self, code: Code, function: Function, product: ast.expr) -> None:
        self.code, self._function, self.product = code, function, product
        statement = code.statement_of(product)
        assert statement is not None
        self._block = code.block_of(statement)
        self._at = self._block.index(statement)
        self.gone: list[ast.stmt] = []  # statements that the call takes in
        self._used: set[ast.AST] = set()  # reads of names whose statement goes

    def read(self) -> Attention | None:
        """The attention that the product ends; None where there is no softmax. Raises Cannot."""
        sides = factors(self.code, self.product)
        found = self._weights(*sides) if sides is not None else None
        if found is not None:
            self._require_unread()
        return found

    # -- reading -----------------------------------------------------------------------------------------

    def _behind(self, node: ast.expr, at: int) -> tuple[ast.expr, int, ast.If | None]:
        """What a name was given by a statement of the block, or where it was changed under an ``if``."""
        if not isinstance(node, ast.Name):
            return node, at, None
        bound = [one for one in range(at) if node.id in binds(self.code, self._block[one])]
        statement = self._block[bound[-1]] if bound else None
        branch = statement if isinstance(statement, ast.If) and not statement.orelse else None
        only = branch.body[0] if branch is not None and len(branch.body) == 1 else statement
        plain = isinstance(only, ast.Assign) and len(only.targets) == 1
        if statement is None or not isinstance(only, ast.Assign) or not plain:
            return node, at, None
        if not isinstance(only.targets[0], ast.Name):
            return node, at, None
        self._used.add(node)
        self.gone.append(statement)
        return only.value, bound[-1], branch

    def _value(self, node: ast.expr, at: int) -> tuple[ast.expr, int]:
        """What a name was given, through names; nothing that hangs on an ``if``."""
        while isinstance(node, ast.Name):
            before = node
            node, at, branch = self._behind(node, at)
            if branch is not None:
                raise Cannot.at("the weights hang on which way the function goes", self.code, branch)
            if node is before:
                break
        return node, at

    def _weights(self, weights: ast.expr, value: ast.expr) -> Attention | None:
        """The attention that a product of weights with values is; None where there is no softmax."""
        node, at = self._value(weights, self._at)
        drop: ast.Call | None = None
        while isinstance(node, ast.Call):
            scores = self._softmax(node)
            if scores is not None:
                found = self._scores(scores, at, value)
                found.dropout = drop
                return found
            inner = self._cast(node)
            if inner is None and self._drops(node):
                if drop is not None:
                    return None
                drop, inner = node, node.args[0]
            if inner is None:
                return None
            node, at = self._value(inner, at)
        return None

    def _softmax(self, call: ast.Call) -> ast.expr | None:
        """What is made weights of. Raises Cannot where it is along another dimension."""
        whole, func = self.code.qualified(call.func), call.func
        if whole in ("torch.softmax", "torch.nn.functional.softmax") and call.args:
            scores, dim = call.args[0], argument(call, "dim", 1)
        elif (
            isinstance(func, ast.Attribute) and func.attr == "softmax" and not whole and not is_of_self(func)
        ):
            scores, dim = func.value, argument(call, "dim", 0)
        else:
            made = self.made(func) if is_of_self(func) and len(call.args) == 1 else None
            if made is None or self.code.qualified(made.func) != "torch.nn.Softmax":
                return None
            scores, dim = call.args[0], argument(made, "dim", 0)
        if dim is None or self.code.source(dim) not in ("-1", "3"):
            raise Cannot.at("whether softmax goes over the last dimension cannot be told", self.code, call)
        return scores

    def made(self, node: ast.expr) -> ast.Call | None:
        """The one call that makes ``self.NAME`` in the class."""
        owner = self.code.class_of(self._function)
        if owner is None or not isinstance(node, ast.Attribute):
            return None
        found = bound_to_self(self.code, owner, node.attr)
        again = [one for one in self.code.nodes(ast.Attribute) if one.attr == node.attr]
        stored = [one for one in again if isinstance(one.ctx, ast.Store)]
        made = found[0] if len(found) == len(stored) == 1 else None
        return made if isinstance(made, ast.Call) else None

    def _cast(self, node: ast.expr) -> ast.expr | None:
        """The tensor of ``s.float()``, ``w.type_as(q)``."""
        plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if plain and not self.code.qualified(node.func) and node.func.attr in _CASTS:  # type: ignore[attr-defined]
            return node.func.value  # type: ignore[attr-defined, no-any-return]
        return None

    def _drops(self, call: ast.Call) -> bool:
        if not call.args:
            return False
        if self.code.qualified(call.func) in ("torch.dropout", "torch.nn.functional.dropout"):
            return True
        made = self.made(call.func) if is_of_self(call.func) and len(call.args) == 1 else None
        return made is not None and self.code.qualified(made.func) == "torch.nn.Dropout"

    def _scores(self, node: ast.expr, at: int, value: ast.expr) -> Attention:
        """Everything between the softmax and the product of queries and keys. Raises Cannot."""
        code = self.code
        found = Attention(query=Piece(node=node, at=at), key=Piece(node=node, at=at), value=value)
        while True:
            before = node
            node, at, branch = self._behind(node, at)
            sides = factors(code, node) if branch is None else None
            if sides is not None:
                found.query = Piece(node=sides[0], at=at)
                found.key = Piece(node=self._transposed(sides[1]), at=at)
                return found
            inner = self._mask(node, at, branch, found)
            if inner is None and branch is None:
                inner = self._cast(node) or self._scaled(node, at, found)
            if inner is None and (node is before or branch is not None):
                raise Cannot.at(f"{shortened(self.code.source(node))} is done to the scores", self.code, node)
            node = inner if inner is not None else node

    def _mask(self, node: ast.expr, at: int, branch: ast.If | None, found: Attention) -> ast.expr | None:
        """The scores without the mask that an expression puts on them. Raises Cannot for a second one."""
        mask: ast.expr | None = None
        fill: ast.expr | None = None
        name = last_name(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name == "masked_fill" and isinstance(node.func, ast.Attribute):
            if len(node.args) == 2 and not node.keywords:
                inner, mask, fill = node.func.value, node.args[0], node.args[1]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            inner, mask = node.left, node.right
        if mask is None:
            return None
        if found.mask is not None:
            raise Cannot.at("two masks are put on the scores", self.code, node)
        if fill is None and found.factors:
            raise Cannot.at("what is added to the scores is scaled with them", self.code, node)
        found.mask, found.adds = Piece(node=mask, at=at), fill is None
        if fill is not None:
            text = "".join(self.code.source(fill).split())
            found.infinite = _INFINITE.fullmatch(text) is not None
            if not found.infinite and not _LARGE.fullmatch(text):
                raise Cannot.at(f"{text} does not mask", self.code, fill)
        if branch is not None:
            found.test = Piece(node=branch.test, at=at)
        return inner

    def _scaled(self, node: ast.expr, at: int, found: Attention) -> ast.expr | None:
        """The scores without the number that an expression multiplies or divides them by."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult | ast.Div):
            return None
        inner, number = node.left, node.right
        if isinstance(node.op, ast.Mult) and factors(self.code, node.right) is not None:
            inner, number = node.right, node.left
        found.factors.append(("*" if isinstance(node.op, ast.Mult) else "/", Piece(node=number, at=at)))
        return inner

    def _transposed(self, node: ast.expr) -> ast.expr:
        """``k`` of ``k.transpose(-2, -1)``."""
        if isinstance(node, ast.Attribute) and node.attr == "mT":
            return node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
            given = [self.code.source(one) for one in node.args]
            if node.func.attr in ("transpose", "swapaxes") and given in _LAST:
                return node.func.value
        raise Cannot.at(f"{shortened(self.code.source(node))} is no transposed key", self.code, node)

    # -- what must hold ----------------------------------------------------------------------------------

    def _require_unread(self) -> None:
        """Raises Cannot where a name whose statement goes is read by anything else."""
        code, statement = self.code, self._block[self._at]
        rebound = binds(code, statement)
        end = code.span(statement)[1]
        for name in {one.id for one in self._used if isinstance(one, ast.Name)}:
            for read in code.nodes(ast.Name, self._function):
                if read.id != name or isinstance(read.ctx, ast.Store) or read in self._used:
                    continue
                inside = any(code.holds(gone, read) for gone in self.gone)  # see ``text``
                if not inside and not (name in rebound and code.span(read)[0] >= end):
                    raise Cannot.at(f"{name} is read here too", self.code, read)

    def text(self, piece: Piece) -> str:
        """A piece as it can be written at the product. Raises Cannot where it may be another one there."""
        code = self.code
        names = {one.id for one in ast.walk(piece.node) if isinstance(one, ast.Name)}
        for statement in self._block[piece.at + 1 : self._at] if piece.at != self._at else ():
            changed = names & (binds(code, statement) | writes(code, statement))
            if changed:
                raise Cannot.at(f"{min(changed)} is another one by the product", self.code, statement)
        return code.source(piece.node)
