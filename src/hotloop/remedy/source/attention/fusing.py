"""Attention by hand written as ``scaled_dot_product_attention``: one kernel, and no matrix of weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import libcst as cst
from libcst import metadata as meta

from hotloop.findings import Place
from hotloop.remedy.source.attention.by_hand import Attention, Dropout, Piece, Terms, read, unswapped
from hotloop.remedy.source.attention.masking import Given, Masks
from hotloop.remedy.source.attention.settled import may_change
from hotloop.remedy.source.attention.tensors import Tensors
from hotloop.remedy.source.code import Code, argument, has_spread, is_self, last_name
from hotloop.remedy.source.follow import Follower, Literal
from hotloop.remedy.source.layout import atom
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot

_CALL: Final = "scaled_dot_product_attention"
_FUNCTIONAL: Final = "torch.nn.functional"
#: Derivatives that the kernels do not have.
_OF_GRADIENTS: Final = frozenset([
    "jvp", "vjp", "jacfwd", "hessian", "hvp", "vhp", "vmap", "jacrev", "jacobian", "forward_ad", "functorch",
    "gradgradcheck", "linearize", "grad_and_value",
])  # fmt: skip
_HOOKS: Final = re.compile(r"register_\w*hook|forward_hooks")
_DRAWS: Final = re.compile(r"drop|rand|bernoulli|multinomial|noise", re.IGNORECASE)
_COMPUTE: Final = frozenset(
    ["torch.nn.Linear", "torch.nn.LayerNorm", "torch.nn.Embedding", "torch.nn.Conv2d"]
)
_METHODS: Final = frozenset([
    "view", "reshape", "transpose", "permute", "contiguous", "unsqueeze", "squeeze", "expand", "flatten", "t",
    "size", "dim", "to", "float", "bool", "type", "type_as", "mul", "div", "add", "sub", "chunk", "split",
    "unbind", "repeat", "repeat_interleave", "masked_fill", "clamp", "abs", "triu", "tril", "append", "long",
    "new_zeros", "new_ones", "logical_not", "detach", "item", "eq", "ne",
])  # fmt: skip
#: What sets how much a module drops.
_SETS_P: Final = re.compile(r"\.p\s*=[^=]|[\"']p[\"'][,\]:]|update\(\s*p=")
#: Methods of the result that go with any order in memory; those that give it another.
_KEEPS_ORDER: Final = frozenset(["contiguous", "unsqueeze", "squeeze", "float", "to", "type_as"])
_MOVES: Final = frozenset(["transpose", "permute", "reshape", "flatten", "swapaxes"])
_WIDTH: Final = 100
_OLDEST: Final = (2, 1)  # of torch, that knows scale=


def fused_attention(plan: Plan, value: Any) -> None:
    """Every attention by hand in the files that ran, where nothing is drawn from its weights."""
    _fuse(plan, dropout=False)


def fused_attention_dropout(plan: Plan, value: Any) -> None:
    """The same where weights are dropped too: the call draws which ones itself."""
    _fuse(plan, dropout=True)


def _fuse(plan: Plan, *, dropout: bool) -> None:
    _require_first_gradients(plan)
    asked = plan.scene.where.get(plan.remedy)
    refused: list[tuple[Cannot, bool]] = []
    others: list[tuple[Cannot, bool]] = []
    written, there = 0, asked is None
    codes = list(plan.scene.codes(""))
    for code in plan.scene.codes("oftmax"):
        if code.path not in plan.scene.hashes:
            continue
        found = read(code, codes)
        for each in found.attention:
            here = (
                asked is not None and asked.file == str(code.path) and _spans(code, each.function, asked.line)
            )
            try:
                _Call(plan, Tensors(code, codes), each, dropout=dropout).write()
                written, there = written + 1, there or here
            except Cannot as cannot:
                refused.append((cannot, here))
        for other in found.others:
            here = asked is not None and asked.file == str(code.path) and _together(code, other, asked)
            others.append((other, here))
    if not written or not there:
        mine = [one for one, here in (*refused, *others) if here or asked is None]
        where = (asked.file, asked.line) if asked is not None else ("", 0)
        none = Cannot("no softmax of a product that is multiplied again can be made out there", *where)
        raise mine[0] if mine else none
    for one, _ in refused:
        plan.remark(f"{plan.remedy}: {Path(one.file).name}:{one.line} stays as it is: {one.why}")


def _spans(code: Code, function: cst.FunctionDef, line: int) -> bool:
    return code.line(function) <= line <= code.end(function)[0]


def _together(code: Code, one: Cannot, place: Place) -> bool:
    """Whether a line stands in the function of another."""
    functions = code.nodes(cst.FunctionDef)
    return any(_spans(code, each, one.line) and _spans(code, each, place.line) for each in functions)


def _require_first_gradients(plan: Plan) -> None:
    """Raises Cannot where the call does not exist, or gradients of gradients are asked for."""
    version = str(plan.scene.process.first("torch").get("version") or "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < _OLDEST:
        raise Cannot(f"torch {version} has no {_CALL}() with a scale")
    for code in plan.scene.codes(""):
        for node in code.nodes(cst.CSTNode):  # type: ignore[type-abstract]
            if _asks_again(code, node):
                words = "gradients of gradients are taken here, which the fused kernels do not have"
                raise Cannot(words, str(code.path), code.line(node))


def _asks_again(code: Code, node: cst.CSTNode) -> bool:
    """Whether a node names, or asks for, derivatives that the kernels do not have."""
    if isinstance(node, cst.Name):
        return node.value in _OF_GRADIENTS
    if isinstance(node, cst.Attribute) and node.attr.value in ("func", "functional"):
        return last_name(node.value) == ("torch" if node.attr.value == "func" else "autograd")
    if not isinstance(node, cst.Call):
        return False
    again, given = argument(node, "create_graph"), [arg for arg in node.args if arg.keyword is None]
    if again is not None:
        return code.source(again) != "False"
    most = {"grad": 4, "backward": 2}.get(last_name(node.func), len(given))
    return len(given) > most or (last_name(node.func) in ("grad", "backward") and has_spread(node))


class _Call:
    """One attention, and the call that takes its place."""

    def __init__(self, plan: Plan, tensors: Tensors, one: Attention, *, dropout: bool) -> None:
        self.plan, self.code, self.one, self.may_drop = plan, tensors.code, one, dropout
        self.scores, self.tensors = one.scores, tensors
        self._gone = {id(statement) for statement in self.scores.statements}
        self._types: list[cst.Name] = []  # what is asked of the scores for their type alone

    def write(self) -> None:
        """Put it into the plan. Raises Cannot before anything is."""
        self._require_alone()
        query, key, value, result = self._factors()
        self._require_order(query[0], key[0], value[0])
        self._query = self._text(query[0])
        arguments = [query[1], key[1], value[1]]
        mask = self._mask()
        if not mask.text and self._is_of_three():  # the kernels take four dimensions
            arguments = [f"{_whole(text)}.unsqueeze(1)" for text in arguments]
            result = f".squeeze(1){result}"
        if mask.causal:
            arguments.append("is_causal=True")
        elif mask.text:
            arguments.append(f"attn_mask={mask.text}")
        dropped = self._dropout()
        if dropped:
            arguments.append(f"dropout_p={dropped}")
        scale = self._scale()
        if scale:
            arguments.append(f"scale={scale}")
        text = self._laid_out(arguments, result + self._own_memory(result))
        code, plan = self.code, self.plan
        for statement in self.scores.statements:
            start, end = code.span(statement)
            start, end = code.line_start(start), code.line_end(max(start, end - 1))
            end += len(code.text.newline) if code.text.text[end : end + len(code.text.newline)] else 0
            plan.rewrite(code, start, end, "", "")
        start, end = self._span()
        plan.rewrite(code, start, end, text, f"softmax of a product, multiplied → {_CALL}")
        for name in self._types:
            plan.rewrite(code, *code.span(name), self._query, "")

    def _span(self) -> tuple[int, int]:
        """Where the product stands, with the parentheses that a call needs none of."""
        product, text = self.one.product, self.code.text.text
        start, end = self.code.span(product)
        tight = text[start - 1 : start] == "(" and text[end : end + 1] == ")"
        return (start - 1, end + 1) if product.lpar and tight else (start, end)

    # -- who else reads ----------------------------------------------------------------------------------

    def _require_alone(self) -> None:
        """Raises Cannot where the scores or the weights are read by anything else."""
        code, function = self.code, self.one.function
        for decorator in function.decorators:
            if "script" in code.source(decorator):
                raise self._cannot("the function is compiled by torch.jit", decorator)
        for name in code.nodes(cst.Name, function):
            if name.value not in self.scores.names or not _is_read(code, name) or self._within(name):
                continue
            if self._is_rebound(name):
                continue
            above = code.parents[name]
            typed = isinstance(above, cst.Attribute) and above.attr.value in ("dtype", "device")
            if not typed or not isinstance(self.scores.query.node, cst.Name):
                raise self._cannot("the scores or the weights are read here too", name)
            self._types.append(name)
        for other in code.nodes(cst.Global, function), code.nodes(cst.Nonlocal, function):
            for statement in other:
                if any(item.name.value in self.scores.names for item in statement.names):
                    raise self._cannot("the weights have a name of others", statement)
        made = any(not isinstance(one, cst.SimpleStatementLine | cst.If) for one in self.scores.statements)
        lines = [one for one in self.scores.statements if isinstance(one, cst.SimpleStatementLine)]
        if made or any(len(one.body) != 1 for one in lines):
            raise self._cannot("it stands in a line with others", self.one.product)
        if any(_HOOKS.search(other.text.text) for other in self.plan.scene.codes("hook")):
            raise self._cannot("a hook may read the weights", self.one.product)
        for call in code.nodes(cst.Call, function):
            if isinstance(call.func, cst.Name) and call.func.value in ("locals", "vars", "eval", "exec"):
                raise self._cannot("the scores or the weights may be read here too", call)

    def _within(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in what goes."""
        held = (*self.scores.statements, self.one.product)
        return any(self.code.holds(one, node) for one in held)

    def _is_rebound(self, name: cst.Name) -> bool:
        """Whether a name stands for something else where it is read."""
        code, first = self.code, (*self.scores.statements, self.one.statement)[0]
        if code.function_of(name) is not self.one.function:
            bound = [one.node for one in code.assignments(name, name.value)]
            return not any(self._within(node) for node in bound)
        begins = self.scores.statements[0] if self.scores.statements else first
        if code.span(name)[0] < code.span(begins)[0]:
            return not any(self._around(name, kind) for kind in (cst.For, cst.While))
        bound_at = self.tensors.binding(name)
        return bound_at is not None and id(bound_at[0]) not in self._gone

    def _around(self, name: cst.CSTNode, kind: type[cst.CSTNode]) -> bool:
        """Whether a loop is around a name and the attention."""
        loop = self.code.above(name, kind)
        while loop is not None:
            if self.code.holds(loop, self.one.product) and self.code.holds(self.one.function, loop):
                return True
            loop = self.code.above(loop, kind)
        return False

    def _require_order(self, query: Piece, key: Piece, value: Piece) -> None:
        """Raises Cannot where what may draw, or change anything, would come in another order."""
        factors = [query, key, value]
        masks = [piece for mask in self.scores.masks for piece in (mask.only_if, mask.piece) if piece]
        pieces = [*factors, *masks, *(piece for _, piece in self.scores.scale)]
        pieces = [one for one in pieces if one.node in self.code.parents and self._does_more(one.node)]
        first = min((one.at for one in pieces), default=value.at)
        between = [one for one in self.one.block[first + 1 : value.at] if id(one) not in self._gone]
        begins = [self.code.span(one.node)[0] for one in pieces]
        if begins != sorted(begins) or any(map(self._does_more, between)):
            words = "what it is made of is called in another order then, and may draw random numbers"
            raise self._cannot(words, pieces[0].node)

    def _does_more(self, node: cst.CSTNode) -> bool:
        """Whether a call in it may do more than compute."""
        return any(not self._only_computes(call) for call in self.code.nodes(cst.Call, node))

    def _only_computes(self, call: cst.Call) -> bool:
        whole, name = self.code.qualified(call.func), last_name(call.func)
        if whole:
            return whole.startswith(("torch.", "math.", "numpy.")) and not _DRAWS.search(whole)
        if not isinstance(call.func, cst.Attribute):
            return name in ("len", "int", "float", "range", "min", "max")
        if is_self(call.func.value):
            made = self.tensors.settled(call.func)
            layer = self.code.qualified(made.func) if isinstance(made, cst.Call) else ""
            return layer in _COMPUTE
        return name in _METHODS

    # -- pieces ------------------------------------------------------------------------------------------

    def _text(self, piece: Piece, node: cst.BaseExpression | None = None) -> str:
        """What is to stand for a piece in the call. Raises Cannot where it would be something else there."""
        code, node = self.code, node if node is not None else piece.node
        if node not in code.parents:
            return code.module.code_for_node(node)  # not of the file
        text, begin = code.source(node), code.span(node)[0]
        edits: list[tuple[int, int]] = []
        between = [*self._behind(piece.at), *self.one.block[piece.at + 1 : self.one.value.at]]
        between = [one for one in between if id(one) not in self._gone]
        for name in code.nodes(cst.Name, node):
            if not _is_read(code, name):
                continue
            bound = self.tensors.binding(name)
            if bound is not None and id(bound[0]) in self._gone:
                above = code.parents[name]
                if not isinstance(above, cst.Attribute) or above.attr.value not in ("dtype", "device"):
                    raise self._cannot("a mask or a scale is made of the scores", name)
                edits.append((code.span(name)[0] - begin, code.span(name)[1] - begin))
            for statement in between:
                if self._binds(statement, name.value):
                    raise self._cannot(f"{name.value} is another one by the product", statement)
        for call in code.nodes(cst.Call, node):
            if _DRAWS.search(code.source(call.func)):
                raise self._cannot("what is multiplied is drawn in the same expression", call)
        for start, end in sorted(edits, reverse=True):
            text = f"{text[:start]}{_whole(self._query)}{text[end:]}"
        return text

    def _behind(self, at: int) -> list[cst.CSTNode]:
        """What follows the statement that goes in the same ``if``."""
        statement = self.one.block[at]
        lines = list(statement.body.body) if isinstance(statement, cst.If) else []
        gone = [place for place, line in enumerate(lines) if id(line) in self._gone]
        return list(lines[gone[-1] :]) if gone else []

    def _binds(self, statement: cst.CSTNode, name: str) -> bool:
        code = self.code
        for one in code.nodes(cst.Name, statement):
            if one.value != name:
                continue
            above = code.parents[one]
            if isinstance(above, cst.Attribute) and above.attr is one:
                if isinstance(code.parents.get(above), cst.AssignTarget | cst.AugAssign):
                    return True
                continue
            if not _is_read(code, one):
                return True
            if may_change(code, one):
                return True
        return False

    # -- the factors -------------------------------------------------------------------------------------

    def _factors(self) -> tuple[tuple[Piece, str], tuple[Piece, str], tuple[Piece, str], str]:
        """Queries, keys and values as the call takes them, and what is to be done to its result."""
        scores, terms = self.scores, self.scores.terms
        query, key = scores.query, scores.key
        self._query = self._text(query)
        if terms is None:
            self._keys: cst.BaseExpression = key.node
            inner = unswapped(self.code, key.node, scores.rank)
            if inner is not None:
                self._keys = inner
                key_text = self._text(key, inner)
            else:
                key_text = f"{atom(key.node, self._text(key))}.transpose(-2, -1)"
            query_text = self._text(query)
        else:
            query, key, query_text, key_text = self._by_letters(terms)
            self._keys = key.node
        value_text, result = self._values()
        return (query, query_text), (key, key_text), (self.one.value, value_text), result

    def _is_of_three(self) -> bool:
        """Whether queries, keys and values have three dimensions each, for certain."""
        first, product = self.scores.begins, self.one.product
        bmm = [
            isinstance(one, cst.Call) and last_name(one.func) in ("bmm", "baddbmm")
            for one in (first, product)
        ]
        terms, behind = self.scores.terms, self.one.terms
        scores = bmm[0] or (terms is not None and len(terms.out) == 3 and "." not in terms.out)
        values = bmm[1] or (behind is not None and len(behind.out) == 3 and "." not in behind.out)
        if not scores:
            scores = all(self.tensors.rank(one) == 3 for one in (self.scores.query.node, self._keys))
        return scores and (values or self.tensors.rank(self.one.value.node) == 3)

    def _by_letters(self, terms: Terms) -> tuple[Piece, Piece, str, str]:
        """Queries and keys of an einsum, in the order of the scores."""
        query, key, left, right = self.scores.query, self.scores.key, terms.left, terms.right
        if terms.out[-1] in left:
            query, key, left, right = key, query, right, left
        rows, columns, batch = terms.out[-2:-1], terms.out[-1], terms.out[:-2]
        summed = set(left) & set(right) - set(terms.out)
        own = rows in left and rows not in right and columns in right and columns not in left
        rest = set(left) | set(right)
        if not own or len(summed) != 1 or rest != {*batch, rows, columns, *summed}:
            raise self._cannot("the scores are not what queries and keys give", self.one.product)
        deep = summed.pop()
        query_text = self._ordered(query, left, f"{batch}{rows}{deep}")
        key_text = self._ordered(key, right, f"{batch}{columns}{deep}")
        return query, key, query_text, key_text

    def _values(self) -> tuple[str, str]:
        """The values, and what is to be done to the result."""
        terms, value = self.one.terms, self.one.value
        if self.one.swapped:
            inner = unswapped(self.code, value.node, self.scores.rank)
            text = self._text(value, inner) if inner is not None else ""
            return text or f"{atom(value.node, self._text(value))}.transpose(-2, -1)", ".transpose(-2, -1)"
        if terms is None:
            return self._text(value), ""
        weights, right = terms.left, terms.right
        first = self.scores.terms
        if first is not None and len(first.out) != len(weights):
            raise self._cannot("the weights have other dimensions than the scores", self.one.product)
        batch, rows, columns = weights[:-2], weights[-2], weights[-1]
        deep = set(right) - set(weights)
        summed = columns in right and columns not in terms.out and rows not in right
        if len(deep) != 1 or not summed or set(terms.out) != {*batch, rows, *deep}:
            raise self._cannot("the product with the values sums over something else", self.one.product)
        last = deep.pop()
        return self._ordered(value, right, f"{batch}{columns}{last}"), _moved(
            f"{batch}{rows}{last}", terms.out, self._cannot("... cannot be put in order", self.one.product)
        )

    def _ordered(self, piece: Piece, have: str, want: str) -> str:
        """A tensor with its dimensions in another order, and of 1 where it lacks one."""
        text = self._text(piece)
        missing = [letter for letter in want if letter not in have]
        cannot = self._cannot("... cannot be put in order", piece.node)
        moved = _moved(have, "".join(letter for letter in want if letter in have), cannot)
        if missing and ("." in have or "." in want):
            raise cannot
        new = "".join(f".unsqueeze({want.index(letter)})" for letter in missing)
        return f"{atom(piece.node, text)}{moved}{new}" if moved or new else text

    # -- the rest of the call ----------------------------------------------------------------------------

    def _mask(self) -> Given:
        masks = self.scores.masks
        if not masks:
            return Given()
        texts = {}
        for mask in masks:
            texts[id(mask.piece.node)] = self._text(mask.piece)
            if mask.only_if is not None:
                texts[id(mask.only_if.node)] = self._test(mask.only_if)
        alike = self.scores.terms is None and not self.one.swapped and self._is_of_itself()
        if self.scores.terms is not None:
            terms = self.scores.terms
            alike = len(terms.left) == len(terms.right) and self._is_of_itself()
        factors = (self.scores.query.node, self._keys, self.one.value.node)
        names = [one.value for one in factors if isinstance(one, cst.Name)]
        return Masks(self.tensors, self._torch, names[0] if names else "").given(masks, texts, alike=alike)

    def _test(self, piece: Piece) -> str:
        """The test that a mask hangs on, which holds still by the product."""
        node = piece.node
        is_there = isinstance(node, cst.Comparison) and isinstance(node.comparisons[0].operator, cst.IsNot)
        statement = self.one.block[piece.at]
        for name in self.code.nodes(cst.Name, node):
            if not is_there and id(statement) not in self._gone and self._binds(statement, name.value):
                raise self._cannot("the test is another one by the product", node)
        text = self._text(piece)
        plain = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Comparison | cst.UnaryOperation
        return text if isinstance(node, plain) else f"({text})"

    def _is_of_itself(self) -> bool:
        """Whether there are as many queries as keys."""
        return self.tensors.made_alike(self.scores.query.node, self._keys)

    def _torch(self) -> str:
        """The name torch has in the file."""
        for name, whole in self._imported():
            if whole == "torch":
                return name
        if self.code.assignments(self.one.product, "torch"):
            raise self._cannot("torch is something else here", self.one.product)
        self.plan.statement(self.code, "import torch")
        return "torch"

    def _functional(self) -> str:
        """The name of the call in the file."""
        names = [f"{name}{_FUNCTIONAL.removeprefix(whole)}" for name, whole in self._imported()]
        if not names:
            self.plan.statement(self.code, "import torch")
        return f"{min(names, key=len, default=_FUNCTIONAL)}.{_CALL}"

    def _imported(self) -> Iterator[tuple[str, str]]:
        """The names that stand for torch, or a module of it on the way to the call, where the product is."""
        code = self.code
        for alias in code.nodes(cst.ImportAlias):
            node: cst.BaseExpression = alias.asname.name if alias.asname is not None else alias.name
            while isinstance(node, cst.Attribute):
                node = node.value
            if not isinstance(node, cst.Name):
                continue
            bound = [_imports(one, node.value) for one in code.assignments(self.one.product, node.value)]
            whole = set().union(*bound)
            if all(bound) and len(whole) == 1 and f"{_FUNCTIONAL}.".startswith(f"{min(whole)}."):
                yield node.value, min(whole)

    def _scale(self) -> str:
        """The scale, where it is not the one the call has by itself."""
        factors = self.scores.scale
        if not factors:
            return "1.0"
        if len(factors) == 1 and self._is_usual(*factors[0]):
            return ""
        parts: list[str] = []
        for sign, piece in factors:
            text = self._text(piece)
            if sign == "*":
                parts.append(text if not parts and len(factors) == 1 else f"({text})")
            else:
                plain = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float
                atom = text if isinstance(piece.node, plain) else f"({text})"
                parts.append(f"1.0 / {atom}" if len(factors) == 1 else f"(1.0 / {atom})")
        return " * ".join(parts)

    def _is_usual(self, sign: str, piece: Piece) -> bool:
        """Whether a scale is one over the root of the last dimension of queries or keys."""
        text = self._plain(piece.node)
        direct = text == "".join(self._text(piece).split())
        if sign == "*":
            inverse = re.fullmatch(r"1(?:\.0?)?/(.+)", text)
            root = re.fullmatch(r"(.+)\*\*(?:-0?\.5|\(-0?\.5\))", text)
            if root is not None:
                return self._is_depth(root[1], direct=direct)
            if inverse is None:
                return False
            text = inverse[1]
        root = re.fullmatch(r"(?:math|np|numpy)\.sqrt\((.+)\)", text) or re.fullmatch(r"(.+)\*\*0?\.5", text)
        return root is not None and self._is_depth(root[1], direct=direct)

    def _plain(self, node: cst.BaseExpression) -> str:
        """Text without blanks, with local names of sizes put in."""
        code, text = self.code, self.code.source(node)
        begin = code.span(node)[0]
        for name in sorted(code.nodes(cst.Name, node), key=lambda one: -code.span(one)[0]):
            found = self.tensors.given(name) if _is_read(code, name) else None
            if found is not None and found[1] is None:
                inner = "".join(code.source(found[0]).split())
                if re.fullmatch(r"\w+\.(size\(-1\)|shape\[-1\])", inner):
                    start, end = (at - begin for at in code.span(name))
                    text = f"{text[:start]}{inner}{text[end:]}"
        return "".join(text.split())

    def _is_depth(self, text: str, *, direct: bool) -> bool:
        """Whether a text is the last dimension of queries or keys; ``direct``: it stands there itself."""
        match = re.fullmatch(r"\(?(\w+)\.(?:size\(-1\)|shape\[-1\])\)?", text)
        if match is None:
            return False
        terms, nodes = self.scores.terms, [self.scores.query.node]
        last = terms is None or (terms.left[-1] == terms.right[-1] and terms.left[-1] not in terms.out)
        if terms is not None or self._keys is not self.scores.key.node:
            nodes.append(self._keys)
        plain = [one.value for one in nodes if isinstance(one, cst.Name)]
        bound = list(self.code.assignments(self.one.product, match[1]))
        once = sum(self.code.function_of(one.node) is self.one.function for one in bound) == 1
        return last and match[1] in plain and (once or direct)

    # -- dropout -----------------------------------------------------------------------------------------

    def _dropout(self) -> str:
        """What is dropped, "" for nothing. Raises Cannot where something may be, and must not."""
        drop = self.scores.dropout
        if drop is None or self._is_nothing(drop):
            return ""
        if not self.may_drop:
            words = "of the weights some are dropped, and the fused call would draw others: that is semantic"
            raise self._cannot(
                words, self.one.product, write="hotloop fix --apply fused-attention-dropout RUN"
            )
        if drop.module is not None:
            module = self._text(drop.module)
            test = f"{module}.training"
            if drop.only_if is not None:
                test = f"{self._test(drop.only_if)} and {test}"
            return f"{module}.p if {test} else 0.0"
        assert drop.p is not None
        p = self._text(drop.p)
        tests = [self._test(one) for one in (drop.only_if, drop.training) if one is not None]
        return f"{p} if {' and '.join(tests)} else 0.0" if tests and tests != ["True"] else p

    def _is_nothing(self, drop: Dropout) -> bool:
        """Whether it is certain that no weight is dropped."""
        if any(_SETS_P.search(code.text.text) for code in self.plan.scene.codes(".p")):
            return False
        if drop.training is not None and self.code.source(drop.training.node) == "False":
            return True
        ps: list[cst.BaseExpression | None] = [drop.p.node] if drop.p is not None else []
        if drop.module is not None:
            owner = self.code.above(self.one.function, cst.ClassDef)
            node = drop.module.node
            if owner is None or not isinstance(node, cst.Attribute) or not is_self(node.value):
                return False
            made = self.tensors.settled(node)
            ps = [argument(made, "p", 0) if isinstance(made, cst.Call) else None]
        return bool(ps) and all(p is not None and self._is_zero(p) for p in ps)

    def _is_zero(self, node: cst.BaseExpression) -> bool:
        try:
            target = Follower(self.plan.scene, ()).expression(self.code, node, None)
        except Cannot:
            return False
        return (
            isinstance(target, Literal)
            and isinstance(target.node, cst.Integer | cst.Float)
            and not target.node.evaluated_value
        )

    # -- layout ------------------------------------------------------------------------------------------

    def _own_memory(self, result: str) -> str:
        """What gives the result the memory that a product has, where it may be viewed or changed in place:
        the kernel keeps its output for the gradients, in an order of its own.
        """
        if self._is_only_read(self.one.product, laid=False):
            return ""
        moved = self.one.terms is not None and ("transpose" in result or "permute" in result)
        if moved and not self._is_only_read(self.one.product, laid=False, returned=True):
            raise self._cannot(
                "how what is made of the result lies in memory cannot be told", self.one.product
            )
        return f".clone(memory_format={self._torch()}.contiguous_format)"

    def _is_only_read(
        self, node: cst.CSTNode, *, laid: bool, returned: bool = False, depth: int = 24
    ) -> bool:
        """Whether all that is made of a tensor is understood, and none of it asks for an order in memory or
        changes it. ``laid``: it has the usual order. ``returned``: such a one may be, too.
        """
        code, above = self.code, self.code.parents.get(node)
        if depth == 0:
            return False

        def is_one(other: cst.CSTNode, *, laid: bool) -> bool:
            return self._is_only_read(other, laid=laid, returned=returned, depth=depth - 1)

        if isinstance(above, cst.Return | cst.Element):
            tuples = isinstance(above, cst.Element) and isinstance(code.parents[above], cst.Tuple)
            whole = code.parents[code.parents[above]] if tuples else above
            return returned and laid and isinstance(whole, cst.Return)
        if isinstance(above, cst.Attribute):
            call, name = code.parents.get(above), above.attr.value
            if not isinstance(call, cst.Call) or call.func is not above:
                return name in ("shape", "dtype", "device")
            if name in ("size", "dim"):
                return True
            if name not in _KEEPS_ORDER | _MOVES and (name != "view" or not laid):
                return False
            laid = name == "contiguous" or (laid and name not in _MOVES)
            return is_one(call, laid=laid)
        if isinstance(above, cst.Arg) and isinstance(call := code.parents[above], cst.Call):
            if self._is_linear(call.func):
                return True
            kept = last_name(call.func) == "rearrange" and code.qualified(call.func).startswith("einops.")
            return kept and is_one(call, laid=False)
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            target = above.targets[0].target
            return isinstance(target, cst.Name) and all(
                is_one(one, laid=laid) for one in self._uses(target, above)
            )
        return False

    def _uses(self, target: cst.Name, assign: cst.Assign) -> Iterator[cst.Name]:
        """Where a name may stand for what a statement gave it."""
        code, statement = self.code, self.code.statement_of(assign)
        for name in code.nodes(cst.Name, self.one.function):
            above = code.parents[name]
            changed = isinstance(above, cst.AugAssign) and above.target is name
            if name.value != target.value or not (changed or _is_read(code, name)):
                continue
            before = code.span(name)[0] < code.span(target)[0] or code.holds(assign, name)
            if before and not any(self._around(name, kind) for kind in (cst.For, cst.While)):
                continue
            bound = self.tensors.binding(name)
            if bound is None or bound[0] is statement:
                yield name

    def _is_linear(self, func: cst.BaseExpression) -> bool:
        """Whether what is called makes a new tensor of its argument: a linear layer."""
        if self.code.qualified(func) == "torch.nn.functional.linear":
            return True
        made = self.tensors.settled(func) if isinstance(func, cst.Attribute) and is_self(func.value) else None
        while isinstance(made, cst.Call) and self.code.qualified(made.func) == "torch.nn.Sequential":
            made = made.args[0].value if made.args and not made.args[0].star else None
        return isinstance(made, cst.Call) and self.code.qualified(made.func) == "torch.nn.Linear"

    def _laid_out(self, arguments: list[str], behind: str) -> str:
        """The call, on lines of its own where it is long."""
        code = self.code
        name = self._functional()
        plain = f"{name}({', '.join(arguments)}){behind}"
        start, end = self._span()
        before = start - code.line_start(start)
        after = len(code.text.text[end : code.line_end(end)].partition("#")[0].rstrip())
        if before + len(plain) + after <= _WIDTH and "\n" not in plain:
            return plain
        indent = code.indent(start)
        step = "\t" if indent.startswith("\t") else "    "
        newline = code.text.newline
        room = _WIDTH - len(indent) - 5
        lines = [", ".join(arguments)]
        if len(lines[0]) > room:
            lines = [", ".join(arguments[:3]), *arguments[3:]]
        if len(lines[0]) > room:
            lines = arguments
        inner = "".join(f"{newline}{indent}{step}{line}," for line in lines)
        inner = inner if len(lines) > 1 else inner[:-1]
        return f"{name}({inner}{newline}{indent}){behind}"

    def _cannot(self, why: str, node: cst.CSTNode, write: str = "") -> Cannot:
        return Cannot(why, str(self.code.path), self.code.line(node), write=write)


def _imports(one: meta.BaseAssignment, name: str) -> set[str]:
    """What an import binds a name to; nothing of other bindings."""
    if not isinstance(one, meta.ImportAssignment):
        return set()
    return {found.name for found in one.get_qualified_names_for(name)}


def _moved(have: str, want: str, cannot: Cannot) -> str:
    """The method that brings dimensions from one order into another, "" for none. Raises Cannot."""
    if have == want:
        return ""
    if "." in have:
        swapped = have[:-2] + have[-1] + have[-2]
        if want == swapped:
            return ".transpose(-2, -1)"
        raise cannot
    places = [have.index(letter) for letter in want]
    moved = [at for at, place in enumerate(places) if at != place]
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(map(str, places))})"


def _whole(text: str) -> str:
    """A text that a method can be called on, whatever it is."""
    return atom(cst.parse_expression(text), text)


def _is_read(code: Code, name: cst.Name) -> bool:
    """Whether a name stands for its value where it is."""
    above = code.parents[name]
    if isinstance(above, cst.Attribute):
        return above.value is name
    if isinstance(above, cst.Arg):
        return above.value is name
    if isinstance(above, cst.AssignTarget | cst.AnnAssign | cst.NamedExpr | cst.Param):
        return getattr(above, "target", None) is not name and getattr(above, "name", None) is not name
    if isinstance(above, cst.AugAssign):
        return above.target is not name
    if isinstance(above, cst.Element):
        node: cst.CSTNode = above
        while isinstance(node, cst.Element | cst.Tuple | cst.List):
            node = code.parents[node]
        return not isinstance(node, cst.AssignTarget | cst.For | cst.CompFor) or not _is_in_target(
            code, above
        )
    return not isinstance(above, cst.For | cst.CompFor) or above.target is not name


def _is_in_target(code: Code, node: cst.CSTNode) -> bool:
    above = code.parents[node]
    while isinstance(above, cst.Tuple | cst.List | cst.Element):
        node, above = above, code.parents[above]
    return getattr(above, "target", None) is node
