"""Attention by hand written as ``scaled_dot_product_attention``: one kernel, and no matrix of weights.

``scores`` reads the one shape that is written. What the weights go through beside that, what reads them once
more, two masks: all of it is left to words.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from hotloop.fix import blocks
from hotloop.fix.follow import Follower, Literal
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot
from hotloop.fix.scores import Attention, Piece, Reader, products
from hotloop.source.nodes import FUNCTIONS, argument, is_of_self, last_name, literal
from hotloop.source.tokens import atom, tokens_of

_CALL: Final = "scaled_dot_product_attention"
_NAMES: Final = {"F": "torch.nn.functional", "nn": "torch.nn", "torch": "torch"}


def fused_attention(plan: Plan, value: Any) -> None:
    """Every attention by hand in the files that ran. The call draws itself which weights are dropped: only
    ``fused-attention-dropout`` writes it then.
    """
    asked, dropout = plan.scene.where.get(plan.remedy), plan.remedy == "fused-attention-dropout"
    refused: list[Cannot] = []
    written = False
    for code in plan.scene.codes("oftmax"):
        if code.path not in plan.scene.hashes:
            continue
        for function in code.nodes(FUNCTIONS):
            first, last = function.lineno, code.end(function)[0]
            here = asked is None or (asked.file == str(code.path) and first <= asked.line <= last)
            for product in products(code, function):
                try:
                    with plan.whole():
                        if _Call(plan, Reader(code, function, product)).write(dropout=dropout):
                            written = written or here
                except Cannot as cannot:
                    refused.append(cannot)
                    if here and asked is not None:
                        raise
    if not written:
        none = Cannot(
            "no softmax of a product that is multiplied again can be made out",
            *((asked.file, asked.line) if asked is not None else ()),
        )
        raise refused[0] if refused else none
    for one in refused:
        plan.remark(f"{plan.remedy}: {one.file.rpartition('/')[2]}:{one.line} stays as it is: {one.why}")


class _Call:
    """One attention, and the call that takes its place."""

    def __init__(self, plan: Plan, reader: Reader) -> None:
        self._plan, self._reader, self._code = plan, reader, reader.code
        self._start, self._end = tokens_of(reader.code).outer(reader.product)

    def write(self, *, dropout: bool) -> bool:
        """Write the call, where the product is one of a softmax. Raises Cannot."""
        found = self._reader.read()
        if found is None:
            return False
        arguments = self._arguments(found, dropout=dropout)
        for statement in self._reader.gone:
            blocks.require_own_line(self._code, statement)
            start, end = self._code.span(statement)
            start, end = self._code.line_start(start), self._code.line_end(max(start, end - 1))
            self._plan.rewrite(self._code, start, end + len(self._code.text.newline), "", "")
        says = f"softmax of a product, multiplied → {_CALL}"
        after = self._code.text.text[self._end : self._code.line_end(self._end)].partition("#")[0]
        name = f"{self._functional()}.{_CALL}"
        new = blocks.laid_out(self._code, self._start, name, arguments, len(after.rstrip()))
        self._plan.rewrite(self._code, self._start, self._end, new, says)
        return True

    def _arguments(self, found: Attention, *, dropout: bool) -> list[str]:
        query = atom(found.query.node, self._reader.text(found.query))
        given = [self._reader.text(found.query), self._reader.text(found.key), self._code.source(found.value)]
        given += self._masking(found, query)
        if found.dropout is not None and not self._is_nothing(found.dropout):
            if not dropout:
                why = "of the weights some are dropped, and the fused call would draw others"
                write = "hotloop fix --apply fused-attention-dropout RUN"
                raise Cannot.at(f"{why}: that is semantic", self._code, self._reader.product, write=write)
            given.append(f"dropout_p={self._rate(found.dropout)}")
        return [*given, f"scale={self._scale(found)}"]

    def _masking(self, found: Attention, query: str) -> list[str]:
        if found.mask is None:
            return []
        piece = found.mask
        if not found.adds and found.test is None and self._is_triangle(piece):
            return ["is_causal=True"]
        if not found.infinite:
            words = "a row that a finite number masks whole would give other gradients"
            raise Cannot.at(words, self._code, piece.node)
        if found.adds:
            text = f"{atom(piece.node, self._reader.text(piece))}.to({query}.dtype)"
        else:
            text = self._kept(piece)
        test = f" if {self._reader.text(found.test)} else None" if found.test is not None else ""
        return [f"attn_mask={text}{test}"]

    def _kept(self, piece: Piece) -> str:
        """The mask that is True where a key takes part, of one that is True where it does not."""
        node = piece.node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self._reader.text(Piece(node=node.operand, at=piece.at))
        return f"~{atom(node, self._reader.text(piece))}"

    def _is_triangle(self, piece: Piece) -> bool:
        """Whether a mask lets each query see the keys up to its own: ``tril(ones(T, T)) == 0``."""
        node = piece.node
        shut = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq)
        if not isinstance(node, ast.Compare) or not shut or self._code.source(node.comparators[0]) != "0":
            return False
        lower: ast.expr | None = node.left
        if isinstance(lower, ast.Subscript) and is_of_self(lower.value):
            ends = [one.upper for one in ast.walk(lower.slice) if isinstance(one, ast.Slice) and one.upper]
            plain = all(one.lower is None for one in ast.walk(lower.slice) if isinstance(one, ast.Slice))
            if not plain or len(ends) != 2 or ast.dump(ends[0]) != ast.dump(ends[1]):
                return False
            lower = self._buffer(last_name(lower.value))
        text = "".join(self._code.source(lower).split()) if lower is not None else ""
        made = re.fullmatch(r"torch\.tril\(torch\.ones\(\(?(\w+),(\w+)\)?[^)]*\)\)(\.view\(.*\))?", text)
        made = made or re.fullmatch(r"torch\.ones\(\(?(\w+),(\w+)\)?[^)]*\)\.tril\(\)(\.view\(.*\))?", text)
        return made is not None and made[1] == made[2] and not made[1].isdigit()

    def _buffer(self, name: str) -> ast.expr | None:
        """What the one ``register_buffer`` of a name in the file is given, if nothing else sets it."""
        calls = [call for call in self._code.calls("register_buffer") if len(call.args) >= 2]
        made = [call for call in calls if self._code.source(call.args[0]).strip("\"'") == name]
        stored = [one for one in self._code.nodes(ast.Attribute) if one.attr == name]
        if len(made) != 1 or any(isinstance(one.ctx, ast.Store) for one in stored):
            return None
        return made[0].args[1]

    def _rate(self, drop: ast.Call) -> str:
        if is_of_self(drop.func):
            module = self._code.source(drop.func)
            return f"{module}.p if {module}.training else 0.0"
        rate, training = argument(drop, "p", 1), argument(drop, "training", 2)
        text = self._code.source(rate) if rate is not None else "0.5"
        return f"{text} if {self._code.source(training)} else 0.0" if training is not None else text

    def _is_nothing(self, drop: ast.Call) -> bool:
        """Whether it is certain that no weight is dropped."""
        made = self._reader.made(drop.func) if is_of_self(drop.func) else None
        rate = argument(made, "p", 0) if made is not None else argument(drop, "p", 1)
        if rate is None:
            return False
        try:
            target = Follower(self._plan.scene, ()).expression(self._code, rate, None)
        except Cannot:
            return False
        node = target.node if isinstance(target, Literal) else getattr(target, "default", None)
        return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not node.value

    def _scale(self, found: Attention) -> str:
        """What the scores are multiplied by."""
        if not found.factors:
            return "1.0"
        texts = [(sign, self._reader.text(piece), piece.node) for sign, piece in found.factors]
        if len(texts) == 1:
            sign, text, node = texts[0]
            return text if sign == "*" else f"1.0 / {text if literal(node) else atom(node, text)}"
        return " * ".join(f"({text})" if sign == "*" else f"(1.0 / ({text}))" for sign, text, _ in texts)

    def _functional(self) -> str:
        """The name of the call in the file."""
        for name, whole in _NAMES.items():
            found = {one.imported for one in self._code.bindings(self._reader.product, name)}
            if found == {whole}:
                return f"{name}{'torch.nn.functional'.removeprefix(whole)}"
        self._plan.statement(self._code, "import torch")
        return "torch.nn.functional"
