"""Attention written out by hand: a product, what is done to it, softmax, the product with the values.

``Reader`` goes through a block of statements in order and keeps, by name, what is known of each matrix of
scores. It speaks of those whose softmax is multiplied by something, and of why others are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import libcst as cst

from hotloop.remedy.source.attention.tensors import Tensors
from hotloop.remedy.source.code import Code, Function, argument, has_spread, is_self, last_name, literal
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import text_of

_SOFTMAX: Final = frozenset(["torch.softmax", "torch.nn.functional.softmax", "torch.special.softmax"])
_PRODUCTS: Final = frozenset(["torch.matmul", "torch.bmm", "torch.linalg.matmul"])
_TIMES: Final = {
    "mul": "*",
    "mul_": "*",
    "multiply": "*",
    "div": "/",
    "div_": "/",
    "divide": "/",
    "true_divide": "/",
}
_PLUS: Final = {"add": "+", "add_": "+", "sub": "-", "sub_": "-"}


@dataclass(frozen=True, kw_only=True)
class Piece:
    """An expression that the rewritten call is given, and the number of the statement it stands in."""

    node: cst.BaseExpression
    at: int


@dataclass(frozen=True, kw_only=True)
class Mask:
    """One thing done to the scores: where ``piece`` holds (``keeps``: does not) they are ``fill``, or it is
    added to them (``sign``). ``truth``: it may be of numbers. ``only_if``: the test that this hangs on.
    """

    piece: Piece
    fill: cst.BaseExpression | None = None
    keeps: bool = False
    truth: bool = False
    sign: Literal["+", "-"] = "+"
    only_if: Piece | None = None


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """What is given up of the weights: a module of the class (or a name), or the arguments of a function."""

    module: Piece | None = None
    p: Piece | None = None
    training: Piece | None = None
    only_if: Piece | None = None


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The letters of an einsum: of the queries, the keys, the scores."""

    left: str
    right: str
    out: str


@dataclass(frozen=True, kw_only=True)
class Scores:
    """A product on its way to be weights; ``statements`` give it the ``names``, and ``begins`` is itself."""

    query: Piece
    key: Piece
    begins: cst.CSTNode
    terms: Terms | None = None
    rank: int | None = None
    scale: tuple[tuple[str, Piece], ...] = ()
    masks: tuple[Mask, ...] = ()
    weights: bool = False
    turned: bool = False  # the last two dimensions of the weights are swapped
    dropout: Dropout | None = None
    statements: tuple[cst.CSTNode, ...] = ()
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Attention:
    """All of it: the scores as they are multiplied by the values in ``product``, the last statement of it."""

    function: Function
    scores: Scores
    value: Piece
    product: cst.BaseExpression
    statement: cst.CSTNode
    block: Sequence[cst.CSTNode]
    terms: Terms | None = None  # of the second einsum
    swapped: bool = False  # the weights are the second factor, with their last two dimensions swapped


@dataclass(kw_only=True)
class Found:
    """What a file holds: attention that can be read, and softmax of products that cannot, with why."""

    attention: list[Attention] = field(default_factory=list)
    others: list[Cannot] = field(default_factory=list)


def read(code: Code, codes: Sequence[Code]) -> Found:
    """Every attention of a file."""
    found = Found()
    for block in code.nodes(cst.IndentedBlock):
        function = code.function_of(block)
        if function is not None:
            _Reader(code, codes, function, block.body).into(found)
    return found


class _Reader:
    """Reads one block."""

    def __init__(
        self, code: Code, codes: Sequence[Code], function: Function, block: Sequence[cst.CSTNode]
    ) -> None:
        self.code, self.function, self.block = code, function, block
        self.tensors = Tensors(code, codes)
        self._known: dict[str, Scores | Cannot] = {}
        self._at = 0
        self._statement: cst.CSTNode = function

    def into(self, found: Found) -> None:
        """Add what the block holds."""
        for at, statement in enumerate(self.block):
            self._at, self._statement = at, statement
            try:
                whole = list(self._products())
                found.attention += whole
                if not whole:
                    self._take_up(self._statement)
                    continue
                for name in self._bound_by(self._statement):
                    self._known.pop(name, None)
            except Cannot as cannot:
                for name in self._bound_by(self._statement):
                    self._known[name] = cannot
                found.others.append(cannot)

    # -- statements --------------------------------------------------------------------------------------

    def _take_up(self, statement: cst.CSTNode) -> None:
        """What a statement makes of the names."""
        if isinstance(statement, cst.If):
            self._branch(statement)
            return
        small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        only = small[0] if len(small) == 1 else None
        got = self._result(only) if only is not None else None
        for name in self._bound_by(statement):
            self._known.pop(name, None)
        if got is not None:
            called, scores = got
            self._known[called] = replace(
                scores, statements=(*scores.statements, statement), names=scores.names | {called}
            )

    def _result(self, only: cst.CSTNode) -> tuple[str, Scores] | None:
        """The name that a small statement gives scores to, and these; None where it has none."""
        if isinstance(only, cst.Assign) and len(only.targets) == 1:
            target = only.targets[0].target
            scores = self._scores(only.value)
            if scores is not None and not isinstance(target, cst.Name):
                if scores.weights:
                    raise self._cannot("the weights are kept", only)
                return None
            return (target.value, scores) if isinstance(target, cst.Name) and scores is not None else None
        if isinstance(only, cst.AnnAssign) and isinstance(only.target, cst.Name) and only.value is not None:
            scores = self._scores(only.value)
            return (only.target.value, scores) if scores is not None else None
        if isinstance(only, cst.AugAssign) and isinstance(only.target, cst.Name):
            known = self._known.get(only.target.value)
            if known is None:
                return None
            signs = {
                cst.AddAssign: "+",
                cst.SubtractAssign: "-",
                cst.MultiplyAssign: "*",
                cst.DivideAssign: "/",
            }
            sign = signs.get(type(only.operator))
            if sign is None:
                raise self._cannot("what is done to the scores is not known", only)
            return only.target.value, self._combined(self._sure(known), sign, only.value, only)
        if isinstance(only, cst.Expr) and isinstance(only.value, cst.Call):
            func = only.value.func
            in_place = isinstance(func, cst.Attribute) and func.attr.value.endswith("_")
            if in_place and isinstance(func, cst.Attribute) and isinstance(func.value, cst.Name):
                scores = self._scores(only.value)
                return (func.value.value, scores) if scores is not None else None
        return None

    def _branch(self, statement: cst.If) -> None:
        """``if mask is not None: scores = scores.masked_fill(...)``"""
        names = [name for name in self._bound_by(statement) if name in self._known]
        if not names:
            return
        inner = statement.body.body
        lines = [one for one in inner if set(self._bound_by(one)) & set(names)]
        single = len(lines) == 1 and len(names) == 1
        only: cst.CSTNode | None = lines[0] if single else None
        if isinstance(only, cst.SimpleStatementLine):
            only = only.body[0] if len(only.body) == 1 else None
        known = self._known[names[0]]
        if statement.orelse is not None or only is None or isinstance(known, Cannot):
            raise self._cannot("the scores hang on which way the function goes", statement)
        got = self._result(only)
        scores = got[1] if got is not None else None
        if scores is None or scores.begins is not known.begins:
            raise self._cannot("the scores hang on which way the function goes", statement)
        test = Piece(node=statement.test, at=self._at)
        if scores.scale != known.scale or scores.weights != known.weights:
            raise self._cannot("the scores hang on which way the function goes", statement)
        masks = tuple(
            replace(mask, only_if=test) if at >= len(known.masks) else mask
            for at, mask in enumerate(scores.masks)
        )
        dropout = scores.dropout
        if dropout is not None and known.dropout is None:
            dropout = replace(dropout, only_if=test)
        whole = len(inner) == 1
        gone = statement if whole else next(one for one in inner if set(self._bound_by(one)) & set(names))
        self._known[names[0]] = replace(
            scores, masks=masks, dropout=dropout, statements=(*known.statements, gone)
        )

    def _bound_by(self, statement: cst.CSTNode) -> list[str]:
        """The names that a statement, or one within, binds or changes in place."""
        code, found = self.code, []
        for name in code.nodes(cst.Name, statement):
            above = code.parents[name]
            outer = code.parents.get(above)
            if isinstance(above, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.NamedExpr):
                if getattr(above, "target", None) is name:
                    found.append(name.value)
            elif isinstance(above, cst.Element | cst.For | cst.AsName) and (
                not isinstance(above, cst.Element) or self._is_target(above)
            ):
                found.append(name.value)
            elif isinstance(above, cst.Attribute) and above.value is name and isinstance(outer, cst.Call):
                changes = above.attr.value.endswith("_") and not above.attr.value.startswith("_")
                if changes and outer.func is above:
                    found.append(name.value)
            elif isinstance(above, cst.Subscript) and above.value is name and self._is_target(above):
                found.append(name.value)
        return list(dict.fromkeys(found))

    def _is_target(self, node: cst.CSTNode) -> bool:
        above = self.code.parents.get(node)
        if isinstance(above, cst.AssignTarget | cst.AugAssign):
            return above.target is node
        if isinstance(above, cst.Tuple | cst.List):
            return self._is_target(above)
        if isinstance(above, cst.Element | cst.Subscript):
            return getattr(above, "value", None) is node and self._is_target(above)
        return False

    # -- the product with the values ---------------------------------------------------------------------

    def _products(self) -> Iterator[Attention]:
        """Every product of weights in the statement."""
        statement = self._statement
        if not isinstance(statement, cst.SimpleStatementLine):
            return
        for node in self.code.nodes(cst.BaseExpression, statement):  # type: ignore[type-abstract]
            factors = self._factors(node)
            if factors is None:
                continue
            left, right, terms = factors
            scores = self._scores(left) if self._may_be_weights(left) else None
            if scores is not None and scores.weights and not scores.turned:
                yield self._attention(scores, right, node, terms, swapped=False)
                continue
            scores = self._scores(right) if terms is None and self._may_be_weights(right) else None
            if scores is not None and scores.weights and scores.turned:
                yield self._attention(scores, left, node, terms, swapped=True)

    def _attention(
        self, scores: Scores, value: cst.BaseExpression, node: cst.BaseExpression, terms: Terms | None,
        *, swapped: bool,
    ) -> Attention:  # fmt: skip
        return Attention(
            function=self.function,
            scores=scores,
            value=Piece(node=value, at=self._at),
            product=node,
            statement=self._statement,
            block=self.block,
            terms=terms,
            swapped=swapped,
        )

    def _may_be_weights(self, node: cst.BaseExpression) -> bool:
        """Whether to look closer: a name that is known, or something with softmax in it."""
        text = self.code.source(node)
        return "softmax" in text.lower() or any(
            isinstance(self._known.get(name.value), Scores) for name in self.code.nodes(cst.Name, node)
        )

    def _factors(
        self, node: cst.CSTNode
    ) -> tuple[cst.BaseExpression, cst.BaseExpression, Terms | None] | None:
        """The two factors of a product, with the letters of an einsum."""
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
            return node.left, node.right, None
        if not isinstance(node, cst.Call) or has_spread(node):
            return None
        whole = self.code.qualified(node.func)
        args = [arg.value for arg in node.args if arg.keyword is None]
        if len(args) != len(node.args):
            return None
        if whole in _PRODUCTS and len(args) == 2:
            return args[0], args[1], None
        if whole == "torch.einsum" and len(args) == 3:
            terms = _terms(text_of(args[0]))
            return (args[1], args[2], terms) if terms is not None else None
        of_tensor = not whole and len(args) == 1 and last_name(node.func) in ("matmul", "bmm")
        return (
            (node.func.value, args[0], None) if of_tensor and isinstance(node.func, cst.Attribute) else None
        )

    # -- expressions -------------------------------------------------------------------------------------

    def _scores(self, node: cst.BaseExpression) -> Scores | None:
        """What an expression says of scores; None where it holds none. Raises Cannot."""
        if isinstance(node, cst.Name):
            known = self._known.get(node.value)
            return self._sure(known) if known is not None else None
        factors = self._factors(node)
        if factors is not None:
            return self._begun(node, *factors)
        if isinstance(node, cst.BinaryOperation):
            return self._of_two(node)
        if isinstance(node, cst.Call):
            return self._called(node)
        return None

    def _sure(self, known: Scores | Cannot) -> Scores:
        if isinstance(known, Cannot):
            raise known
        return known

    def _begun(
        self,
        node: cst.BaseExpression,
        left: cst.BaseExpression,
        right: cst.BaseExpression,
        terms: Terms | None,
    ) -> Scores | None:
        for factor in (left, right):
            if self._may_be_weights(factor):
                inner = self._scores(factor)
                if inner is not None and inner.weights:
                    return None  # the product with the values
        rank = self.tensors.rank(node)
        if terms is not None:
            rank = None if "." in terms.out else len(terms.out)
        return Scores(
            query=Piece(node=left, at=self._at),
            key=Piece(node=right, at=self._at),
            begins=node,
            terms=terms,
            rank=rank,
        )

    def _of_two(self, node: cst.BinaryOperation) -> Scores | None:
        signs = {cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*", cst.Divide: "/"}
        sign = signs.get(type(node.operator))
        left = self._scores(node.left)
        if left is not None:
            if sign is None:
                raise self._cannot("what is done to the scores is not known", node)
            return self._combined(left, sign, node.right, node)
        right = self._scores(node.right)
        if right is None:
            return None
        if sign not in ("+", "*"):
            raise self._cannot("what is done to the scores is not known", node)
        return self._combined(right, sign, node.left, node)

    def _combined(self, scores: Scores, sign: str, other: cst.BaseExpression, node: cst.CSTNode) -> Scores:
        """Scores with a number, a mask or a bias."""
        self._require_scores(scores, node)
        piece = Piece(node=other, at=self._at)
        if sign in "*/":
            if scores.masks:
                raise self._cannot("the scores are scaled after something was added to them", node)
            if not self.tensors.is_number(other):
                words = f"{self._short(other)} cannot be told to be a number, which scale= must be"
                raise self._cannot(words, node)
            return replace(scores, scale=(*scores.scale, (sign, piece)))
        mask = Mask(piece=piece, sign="+" if sign == "+" else "-")
        return replace(scores, masks=(*scores.masks, mask))

    def _require_scores(self, scores: Scores, node: cst.CSTNode) -> None:
        if scores.weights:
            raise self._cannot("the weights are changed after softmax", node)

    def _called(self, node: cst.Call) -> Scores | None:
        whole = self.code.qualified(node.func)
        if whole in _SOFTMAX:
            given = argument(node, "input", 0)
            return self._softmax(given, argument(node, "dim", 1), node) if given is not None else None
        if whole == "torch.nn.functional.dropout":
            return self._dropped_by_function(node)
        if whole in ("torch.where", "torch.masked_fill", "torch.div", "torch.mul", "torch.add"):
            return self._of_torch(node, whole.rpartition(".")[2])
        if whole == "torch.baddbmm":
            return self._baddbmm(node)
        called = self._module(node)
        if called is not None:
            return called
        if isinstance(node.func, cst.Attribute) and not whole:
            scores = self._scores(node.func.value)
            return self._method(scores, node, node.func.attr.value) if scores is not None else None
        for arg in node.args:
            if self._may_be_weights(arg.value) and self._scores(arg.value) is not None:
                raise self._cannot(f"what {self._short(node.func)} does to the scores is not known", node)
        return None

    def _method(self, scores: Scores, node: cst.Call, name: str) -> Scores | None:
        args = [arg.value for arg in node.args if arg.keyword is None]
        plain = len(args) == len(node.args) and not has_spread(node)
        if name == "softmax":
            return self._softmax_of(scores, argument(node, "dim", 0), node)
        if name in ("masked_fill", "masked_fill_") and plain and len(args) == 2:
            return self._filled(scores, args[0], args[1], node)
        if name in _TIMES and plain and len(args) == 1:
            return self._combined(scores, _TIMES[name], args[0], node)
        if name in _PLUS and plain and len(args) == 1:
            return self._combined(scores, _PLUS[name], args[0], node)
        if self._only_casts(scores, node, name, args):
            return scores
        if scores.weights and unswapped(self.code, node, scores.rank) is not None:
            return replace(scores, turned=not scores.turned)
        if name in ("size", "dim", "element_size", "numel"):
            return None
        raise self._cannot(f"{name}() is done to the {'weights' if scores.weights else 'scores'}", node)

    def _only_casts(self, scores: Scores, node: cst.Call, name: str, args: list[cst.BaseExpression]) -> bool:
        """Whether a method gives more precision before softmax, or the type of the values after it."""
        if name == "contiguous":
            return True
        if name == "type_as" and len(args) == 1:
            return scores.weights
        if name == "float" and not node.args:
            return not scores.weights
        if name in ("to", "type") and len(node.args) == 1:
            to = self.code.qualified(node.args[0].value)
            if scores.weights:
                value = node.args[0].value
                return isinstance(value, cst.Attribute) and value.attr.value == "dtype"
            return to in ("torch.float", "torch.float32") or self._is_its_own(node.args[0].value)
        return False

    def _is_its_own(self, node: cst.BaseExpression) -> bool:
        """Whether a type is that of the scores."""
        if not isinstance(node, cst.Attribute) or node.attr.value != "dtype":
            return False
        return isinstance(self._known.get(last_name(node.value)), Scores)

    def _of_torch(self, node: cst.Call, name: str) -> Scores | None:
        args = [arg.value for arg in node.args if arg.keyword is None]
        if len(args) != len(node.args) or has_spread(node):
            return None
        if name == "where" and len(args) == 3:
            scores, other = self._scores(args[1]), self._scores(args[2])
            if scores is not None and other is None:
                return self._filled(scores, args[0], args[2], node, keeps=True, truth=True)
            if other is not None and scores is None:
                return self._filled(other, args[0], args[1], node, truth=True)
            return None
        scores = self._scores(args[0]) if args else None
        if scores is None:
            return None
        if name == "masked_fill" and len(args) == 3:
            return self._filled(scores, args[1], args[2], node)
        sign = {"div": "/", "mul": "*", "add": "+"}.get(name)
        if sign is None or len(args) != 2:
            raise self._cannot(f"{name}() is done to the scores", node)
        return self._combined(scores, sign, args[1], node)

    def _baddbmm(self, node: cst.Call) -> Scores | None:
        """``torch.baddbmm(empty, q, k.transpose(1, 2), beta=0, alpha=scale)``"""
        args = [arg.value for arg in node.args if arg.keyword is None]
        beta, alpha = argument(node, "beta"), argument(node, "alpha")
        if (
            len(args) != 3
            or beta is None
            or not literal(beta)
            or float(self.code.source(beta)) not in (0.0, 1.0)
        ):
            return None
        scores = Scores(
            query=Piece(node=args[1], at=self._at), key=Piece(node=args[2], at=self._at), begins=node, rank=3
        )
        if alpha is not None:
            scores = self._combined(scores, "*", alpha, node)
        if float(self.code.source(beta)) == 1.0:
            scores = self._combined(scores, "+", args[0], node)
        return scores

    def _filled(
        self, scores: Scores, where: cst.BaseExpression, fill: cst.BaseExpression, node: cst.CSTNode,
        *, keeps: bool = False, truth: bool = False,
    ) -> Scores:  # fmt: skip
        self._require_scores(scores, node)
        mask = Mask(piece=Piece(node=where, at=self._at), fill=fill, keeps=keeps, truth=truth)
        return replace(scores, masks=(*scores.masks, mask))

    # -- softmax and dropout -----------------------------------------------------------------------------

    def _softmax(
        self, given: cst.BaseExpression, dim: cst.BaseExpression | None, node: cst.Call
    ) -> Scores | None:
        scores = self._scores(given)
        return self._softmax_of(scores, dim, node) if scores is not None else None

    def _softmax_of(self, scores: Scores, dim: cst.BaseExpression | None, node: cst.Call) -> Scores:
        self._require_scores(scores, node)
        said = self.code.source(dim) if dim is not None else ""
        last = str(scores.rank - 1) if scores.rank is not None else "-1"
        if said not in ("-1", last):
            raise self._cannot("that softmax goes over the last dimension cannot be told", node)
        dtype = argument(node, "dtype")
        if dtype is not None and self.code.qualified(dtype) not in ("torch.float", "torch.float32"):
            raise self._cannot("softmax is done in another type", node)
        return replace(scores, weights=True)

    def _module(self, node: cst.Call) -> Scores | None:
        """``self.softmax(scores)``, ``nn.Softmax(dim=-1)(scores)``, ``self.dropout(weights)``"""
        if len(node.args) != 1 or node.args[0].keyword is not None or node.args[0].star:
            return None
        func, given = node.func, node.args[0].value
        if not self._may_be_weights(given) and not isinstance(given, cst.Call | cst.BinaryOperation):
            return None
        made = self._made_by(func)
        if not made:
            return self._handed_in(func, given)
        scores = self._scores(given)
        if scores is None:
            return None
        kinds = {self.code.qualified(one.func) for one in made}
        if kinds == {"torch.nn.Softmax"}:
            dims = {
                self.code.source(dim) if dim is not None else ""
                for dim in (argument(one, "dim", 0) for one in made)
            }
            dim = argument(made[0], "dim", 0)
            if len(dims) != 1:
                raise self._cannot("that softmax goes over the last dimension cannot be told", node)
            return self._softmax_of(scores, dim, node)
        if kinds == {"torch.nn.Identity"}:
            return scores
        if kinds == {"torch.nn.Dropout"} and scores.weights and scores.dropout is None:
            return replace(scores, dropout=Dropout(module=Piece(node=func, at=self._at)))
        raise self._cannot(f"what {self._short(func)} does to the scores is not known", node)

    def _handed_in(self, func: cst.BaseExpression, given: cst.BaseExpression) -> Scores | None:
        """``dropout(weights)`` of a parameter."""
        if not isinstance(func, cst.Name) or "drop" not in func.value.lower():
            return None
        bound = [one.node for one in self.code.assignments(func, func.value)]
        scores = self._scores(given)
        if scores is None or not scores.weights or scores.dropout is not None:
            return None
        if not bound or not all(isinstance(one, cst.Param) for one in bound):
            return None
        if not self._is_given_dropout(func.value):
            raise self._cannot(f"what {func.value} does to the weights cannot be told", func)
        return replace(scores, dropout=Dropout(module=Piece(node=func, at=self._at)))

    def _is_given_dropout(self, name: str) -> bool:
        """Whether all who call the function hand in a dropout of torch's, or none."""
        names = [one.name.value for one in self.function.params.params]
        position = names.index(name) - (names[0] == "self") if name in names else None
        for code in self.tensors.codes:
            for call in code.nodes(cst.Call):
                if last_name(call.func) != self.function.name.value:
                    continue
                given = argument(call, name, position)
                made = None
                if isinstance(given, cst.Attribute) and is_self(given.value):
                    made = Tensors(code, self.tensors.codes).settled(given)
                known = isinstance(made, cst.Call) and code.qualified(made.func) == "torch.nn.Dropout"
                nothing = given is None or last_name(given) == "None"
                if has_spread(call) or not (known or nothing):
                    return False
        return True

    def _made_by(self, func: cst.BaseExpression) -> list[cst.Call]:
        """The calls that made a module; the parameter ``dropout`` of a function as a module of torch's."""
        if isinstance(func, cst.Call):
            return [func] if self.code.qualified(func.func).startswith("torch.nn.") else []
        owner = self.code.above(self.function, cst.ClassDef)
        if isinstance(func, cst.Attribute) and is_self(func.value) and owner is not None:
            made = self.tensors.settled(func)
            return [made] if isinstance(made, cst.Call) else []
        return []

    def _dropped_by_function(self, node: cst.Call) -> Scores | None:
        given = argument(node, "input", 0)
        scores = self._scores(given) if given is not None else None
        if scores is None:
            return None
        p, training = argument(node, "p", 1), argument(node, "training", 2)
        if not scores.weights or scores.dropout is not None or argument(node, "inplace", 3) is not None:
            raise self._cannot("what dropout() does to the scores is not known", node)
        return replace(
            scores,
            dropout=Dropout(
                p=Piece(node=p if p is not None else cst.Float("0.5"), at=self._at),
                training=Piece(node=training, at=self._at) if training is not None else None,
            ),
        )

    # -- words -------------------------------------------------------------------------------------------

    def _short(self, node: cst.CSTNode) -> str:
        words = " ".join(self.code.source(node).split())
        return words if len(words) <= 40 else words[:37] + "..."

    def _cannot(self, why: str, node: cst.CSTNode) -> Cannot:
        return Cannot(why, str(self.code.path), self.code.line(node))


def unswapped(code: Code, node: cst.BaseExpression, rank: int | None) -> cst.BaseExpression | None:
    """``x`` of ``x.transpose(-2, -1)`` and the like; None where the last two dimensions are not swapped."""
    if isinstance(node, cst.Attribute):
        return node.value if node.attr.value == "mT" else None
    if not isinstance(node, cst.Call) or any(arg.keyword is not None or arg.star for arg in node.args):
        return None
    name, whole = last_name(node.func), code.qualified(node.func)
    if whole in ("torch.transpose", "torch.swapaxes", "torch.permute") and node.args:
        inner, args = node.args[0].value, node.args[1:]
    elif isinstance(node.func, cst.Attribute) and not whole:
        inner, args = node.func.value, node.args
    else:
        return None
    given = [code.source(arg.value) for arg in args]
    if name == "t" and not given:
        return inner
    if name in ("transpose", "swapaxes"):
        last = [["-1", "-2"]] + ([[str(rank - 2), str(rank - 1)]] if rank else [])
        return inner if sorted(given) in last else None
    if name == "permute":
        if len(args) == 1 and isinstance(args[0].value, cst.Tuple | cst.List):
            given = [code.source(one.value) for one in args[0].value.elements]
        swapped = [*map(str, range(len(given)))]
        if len(given) >= 2:
            swapped[-2:] = [swapped[-1], swapped[-2]]
        also = [*swapped[:-2], "-1", "-2"]
        return inner if len(given) >= 2 and given in (swapped, also) else None
    return None


def _terms(text: str | None) -> Terms | None:
    """The letters of ``bhqd,bhkd->bhqk``; None where one stands twice, or it is not of two."""
    match = re.fullmatch(
        r"((?:\.\.\.)?[a-zA-Z]+),((?:\.\.\.)?[a-zA-Z]+)->((?:\.\.\.)?[a-zA-Z]+)",
        (text or "").replace(" ", ""),
    )
    if match is None:
        return None
    parts = [match[i].replace("...", ".") for i in (1, 2, 3)]
    if any(len(set(part)) != len(part) for part in parts):
        return None
    return Terms(left=parts[0], right=parts[1], out=parts[2])
