"""The masks of attention by hand as the fused call takes them: causal, of truth values, added."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import libcst as cst

from hotloop.remedy.source.attention.by_hand import Mask
from hotloop.remedy.source.attention.settled import is_left_alone
from hotloop.remedy.source.attention.tensors import Tensors, attributes
from hotloop.remedy.source.code import Code, argument, is_self, last_name
from hotloop.remedy.source.layout import atom
from hotloop.remedy.source.scene import Cannot

#: What is added is smaller, so that no row is masked whole by it.
_SMALL: Final = 1e3
_LOWEST: Final = -3.4e38
_PARAMETER: Final = "torch.nn.Parameter"
_PLACES: Final = frozenset(["torch.arange", "torch.zeros", "torch.ones", "torch.randn", "torch.rand"])
_LEARNED: Final = frozenset(["torch.nn.Embedding", "torch.nn.Linear"])
_STAYS_SMALL: Final = frozenset(["abs", "clamp", "neg", "permute", "transpose", "squeeze", "flatten"])
#: What a row that keeps one key makes zero of.
_NOTHING: Final = 1e4
_KEEPS_SHAPE: Final = frozenset([
    "bool", "float", "byte", "to", "type", "int", "long", "half", "cuda", "contiguous", "clone", "detach",
    "view", "reshape", "unsqueeze", "expand", "type_as",
])  # fmt: skip
_INF: Final = re.compile(
    r"""^-?(float\(["'][-+]?(inf|infinity)["']\)|(math|torch|np|numpy)\.inf)$""", re.IGNORECASE
)

Kind = Literal["bool", "float"]


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the call is given: ``attn_mask=TEXT``, or that it is causal (where ``only_if`` holds)."""

    text: str = ""
    causal: bool = False


class Masks:
    """The masks of one attention. ``text`` writes a node as it is to stand in the call."""

    def __init__(self, tensors: Tensors, torch: Callable[[], str], typed: str) -> None:
        self.code, self.tensors, self.torch, self.typed = tensors.code, tensors, torch, typed

    def given(self, masks: Sequence[Mask], texts: dict[int, str], *, alike: bool) -> Given:
        """What they are together. ``texts``: of the nodes. Raises Cannot."""
        if len(masks) == 1 and masks[0].only_if is None and alike and self._is_causal(masks[0]):
            return Given(causal=True)
        pairs = list(masks)
        if all(mask.fill is not None for mask in masks):
            pairs.sort(key=lambda mask: mask.only_if is not None)
        one = sum(mask.fill is not None for mask in masks) == 1
        whole: tuple[str, Kind] | None = None
        maybe = False
        for mask in pairs:
            if maybe:
                raise self._cannot("of several masks one is there at times only", mask)
            new = self._with(whole, mask, texts, one=one)
            if mask.only_if is not None:
                if whole is not None and whole[1] != new[1]:
                    raise self._cannot("of several masks one is there at times only", mask)
                otherwise = whole[0] if whole is not None else "None"
                test = texts[id(mask.only_if.node)]
                if otherwise != "None" or test != f"{new[0]} is not None":
                    new = f"{new[0]} if {test} else {otherwise}", new[1]
                maybe = whole is None
            whole = new
        return Given(text=whole[0] if whole is not None else "")

    def _with(
        self, old: tuple[str, Kind] | None, mask: Mask, texts: dict[int, str], *, one: bool
    ) -> tuple[str, Kind]:
        """The mask so far with another. ``one``: of them all, no other keeps scores away."""
        node = mask.piece.node
        text = texts[id(node)]
        if mask.fill is None:
            return self._with_added(old, mask, text)
        fill = self._fill(mask)
        if fill != -math.inf and not (one and self._leaves_one(mask)):
            words = (
                "a number is put where nothing is looked at, and that no row is masked whole cannot be told"
            )
            raise self._cannot(words, mask)
        if mask.truth and not self._is_bool(node):
            text = f"{atom(node, text)}.bool()"
            node = cst.parse_expression(text)
        kept, dropped = _inverted(self.code, node, text), text
        if mask.keeps:
            kept, dropped = text, kept
        if old is None:
            return self._wide(mask.piece.node, kept), "bool"
        if old[1] == "bool":
            return f"({old[0]}) & ({kept})", "bool"
        return f'{old[0]}.masked_fill({dropped}, float("-inf"))', "float"

    def _with_added(self, old: tuple[str, Kind] | None, mask: Mask, text: str) -> tuple[str, Kind]:
        node = mask.piece.node
        if self._triangle(node, added=True) == "upper" and mask.sign == "+":
            kept = f"{atom(node, text)} == 0"
            if old is None:
                return kept, "bool"
            if old[1] == "bool":
                return f"({old[0]}) & ({kept})", "bool"
        elif not self._is_bias(node):
            raise self._cannot("what is added to the scores cannot be told to be numbers near zero", mask)
        if not self.typed:
            raise self._cannot("what is added to the scores may have another type than they", mask)
        text = f"-{atom(node, text)}" if mask.sign == "-" else text
        if old is not None and old[1] == "float":
            text = f"{old[0].removesuffix(self._to)} + {text if mask.sign == '+' else f'({text})'}"
        plain = mask.sign == "+" and (old is None or old[1] == "bool")
        text = f"{atom(node, text) if plain else f'({text})'}{self._to}"
        if old is not None and old[1] == "bool":
            return f'{text}.masked_fill(~({old[0]}), float("-inf"))', "float"
        return (text if old is not None else self._wide(node, text)), "float"

    @property
    def _to(self) -> str:
        """What gives the type of the queries."""
        return f".to({self.typed}.dtype)"

    def _wide(self, node: cst.BaseExpression, text: str) -> str:
        """A mask of two dimensions at least, which the call asks for."""
        return text if self._rank(node) >= 2 else f"{self.torch()}.atleast_2d({text})"

    def _rank(self, node: cst.BaseExpression, depth: int = 16) -> int:
        """How many dimensions a mask has at least."""
        if depth == 0:
            return 0
        known = self.tensors.rank(node)
        if known is not None:
            return known
        if isinstance(node, cst.Name):
            found = self.tensors.given(node)
            return self._rank(found[0], depth - 1) if found is not None and found[1] is None else 0
        if isinstance(node, cst.Subscript):
            parts = [one.slice for one in node.slice]
            kept = [one for one in parts if isinstance(one, cst.Slice) or self.code.source(one) == "None"]
            return len(kept)
        if isinstance(node, cst.Comparison):
            sides = (node.left, *(one.comparator for one in node.comparisons))
            return max(self._rank(one, depth - 1) for one in sides)
        if isinstance(node, cst.BinaryOperation):
            return max(self._rank(one, depth - 1) for one in (node.left, node.right))
        if isinstance(node, cst.UnaryOperation):
            return self._rank(node.expression, depth - 1)
        if self._triangle(node) or self._triangle(node, added=True):
            return 2
        if isinstance(node, cst.Attribute) and is_self(node.value):
            made = self.tensors.settled(node, tensor=True)
            return self._rank(made, depth - 1) if made is not None else 0
        if (
            isinstance(node, cst.Call)
            and isinstance(node.func, cst.Attribute)
            and not self.code.qualified(node.func)
        ):
            inner = self._rank(node.func.value, depth - 1)
            name = last_name(node.func)
            if name == "unsqueeze":
                return inner + 1
            return inner if name in ("bool", "to", "logical_not", "type", "clamp", "abs") else 0
        return 0

    def _is_bias(self, node: cst.BaseExpression, depth: int = 24) -> bool:
        """Whether what is added is made of what is learned, of places and of small numbers."""
        if depth == 0:
            return False
        code = self.code

        def is_one(other: cst.BaseExpression) -> bool:
            return self._is_bias(other, depth - 1)

        if isinstance(node, cst.Integer | cst.Float):
            return float(code.source(node)) <= _SMALL
        if isinstance(node, cst.List | cst.Tuple):
            return all(is_one(one.value) for one in node.elements)
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.Minus) and is_one(node.expression)
        if isinstance(node, cst.BinaryOperation):
            plain = isinstance(node.operator, cst.Add | cst.Subtract | cst.Multiply)
            return plain and is_one(node.left) and is_one(node.right)
        if isinstance(node, cst.Subscript):
            return is_one(node.value)
        if isinstance(node, cst.Name):
            found = self.tensors.given(node)
            alone = found is not None and found[1] is None and is_left_alone(code, node)
            return alone and found is not None and is_one(found[0])
        if isinstance(node, cst.Attribute) and is_self(node.value):
            owner = code.above(node, cst.ClassDef)
            made = attributes(code, owner, node.attr.value) if owner is not None else []
            learned = [isinstance(one, cst.Call) and code.qualified(one.func) == _PARAMETER for one in made]
            settled = self.tensors.settled(node, tensor=True) if not learned or not all(learned) else None
            return (bool(learned) and all(learned)) or (settled is not None and is_one(settled))
        return isinstance(node, cst.Call) and self._is_bias_called(node, depth)

    def _is_bias_called(self, node: cst.Call, depth: int) -> bool:
        code, name, whole = self.code, last_name(node.func), self.code.qualified(node.func)
        if whole in _PLACES:
            return True
        if whole in ("torch.tensor", "torch.Tensor", "torch.abs"):
            return bool(node.args) and self._is_bias(node.args[0].value, depth - 1)
        if whole or not isinstance(node.func, cst.Attribute):
            return False
        if not is_self(node.func.value):
            kept = name in _KEEPS_SHAPE or name in _STAYS_SMALL
            return kept and self._is_bias(node.func.value, depth - 1)
        owner = code.above(node, cst.ClassDef)
        made = attributes(code, owner, name) if owner is not None else []
        layers = [code.qualified(one.func) if isinstance(one, cst.Call) else "" for one in made]
        return bool(layers) and all(layer in _LEARNED for layer in layers)

    # -- what is filled in -------------------------------------------------------------------------------

    def _fill(self, mask: Mask) -> float | None:
        """The number of a mask. Raises Cannot."""
        if mask.fill is None:
            return None
        found = self._number(mask.fill)
        if found is None:
            raise self._cannot("what is put where nothing is looked at is no number that can be told", mask)
        return found

    def _number(self, node: cst.BaseExpression, depth: int = 8) -> float | None:
        code = self.code
        text = "".join(code.source(node).split())
        if _INF.match(text):
            negative = text.startswith("-") != ('("-' in text or "('-" in text)
            return -math.inf if negative else None
        finfo = re.fullmatch(r"(?:-)?torch\.finfo\((.+)\)\.(min|max)", text)
        if finfo is not None and text.startswith("-") == (finfo[2] == "max"):
            return _LOWEST
        if isinstance(node, cst.UnaryOperation | cst.Float | cst.Integer):
            try:
                return float(text)
            except ValueError:
                return None
        if isinstance(node, cst.Call):
            whole = code.qualified(node.func)
            if isinstance(node.func, cst.Name) and node.func.value == "float" and len(node.args) == 1:
                return self._number(node.args[0].value, depth - 1)
            inner = argument(node, "data", 0) if whole == "torch.tensor" else None
            if whole == "torch.full":
                size = argument(node, "size", 0)
                empty = isinstance(size, cst.List | cst.Tuple) and not size.elements
                inner = argument(node, "fill_value", 1) if empty else None
            return self._number(inner, depth - 1) if inner is not None and depth else None
        if isinstance(node, cst.Name) and depth:
            found = self.tensors.given(node)
            return self._number(found[0], depth - 1) if found is not None and found[1] is None else None
        if isinstance(node, cst.Attribute) and is_self(node.value) and depth:
            made = self.tensors.settled(node)
            return self._number(made, depth - 1) if made is not None else None
        return None

    # -- causal ------------------------------------------------------------------------------------------

    def _is_causal(self, mask: Mask) -> bool:
        """Whether a mask leaves each query the keys up to its own, and nothing else."""
        node, fill = mask.piece.node, self._fill(mask)
        if fill is None:
            return mask.sign == "+" and self._triangle(node, added=True) == "upper"
        return fill <= -_NOTHING and self._triangle(node) == ("lower" if mask.keeps else "upper")

    def _leaves_one(self, mask: Mask) -> bool:
        """Whether what a mask leaves is a lower triangle, or rows of one: none of it is masked whole."""
        node, fill = mask.piece.node, self._fill(mask)
        found = self.tensors.given(node) if isinstance(node, cst.Name) else None
        if (
            found is not None
            and found[1] is None
            and isinstance(node, cst.Name)
            and is_left_alone(self.code, node)
        ):
            node = found[0]
        if isinstance(node, cst.Subscript) and self._is_part_of_rows(node):
            node = node.value
        return (
            fill is not None
            and fill <= -_NOTHING
            and self._triangle(node) == ("lower" if mask.keeps else "upper")
        )

    def _is_part_of_rows(self, node: cst.Subscript) -> bool:
        """``mask[:, :, K - Q : K, :K]``: every row with its own column."""
        *before, rows, columns = ["".join(self.code.source(one.slice).split()) for one in node.slice] or [
            "",
            "",
        ]
        match = re.fullmatch(r"(\w+)-\w+:(\w+)", rows)
        same = match is not None and match[1] == match[2] and columns == f":{match[1]}"
        return same and all(one == ":" for one in before)

    def _triangle(self, node: cst.BaseExpression, *, added: bool = False, depth: int = 16) -> str:
        """``lower`` for what is true (``added``: -inf) on and below the diagonal of a square, ``upper`` for
        what is above it and no more, "" for anything else.
        """
        if depth == 0:
            return ""
        code = self.code

        def inner(one: cst.BaseExpression) -> str:
            return self._triangle(one, added=added, depth=depth - 1)

        if isinstance(node, cst.Name):
            found = self.tensors.given(node)
            alone = found is not None and found[1] is None and is_left_alone(code, node)
            return inner(found[0]) if alone and found is not None else ""
        if isinstance(node, cst.Attribute) and is_self(node.value):
            made = self.tensors.settled(node, tensor=True)
            return inner(made) if made is not None else ""
        if isinstance(node, cst.Subscript):
            return inner(node.value) if self._is_square_part(node) else ""
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert) and not added:
            return _other(inner(node.expression)) if self._is_bool(node.expression) else ""
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1 and not added:
            return self._compared(node, inner(node.left))
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Subtract) and not added:
            return _other(inner(node.right)) if code.source(node.left) in ("1", "1.0") else ""
        if not isinstance(node, cst.Call):
            return ""
        name, whole = last_name(node.func), code.qualified(node.func)
        if whole.endswith("Transformer.generate_square_subsequent_mask"):
            return "upper" if added and len(node.args) == 1 else ""
        if name in ("tril", "triu"):
            return self._cut(node, name, whole, added=added)
        if isinstance(node.func, cst.Attribute) and not whole:
            if name == "logical_not" and not added:
                return _other(inner(node.func.value))
            kept = name in _KEEPS_SHAPE and self._keeps_square(node, name)
            return inner(node.func.value) if kept else ""
        return ""

    def _compared(self, node: cst.Comparison, inner: str) -> str:
        """``X == 0``, ``X != 0``, ``X > 0``, ``X == 1`` of a triangle of ones and zeros."""
        only = node.comparisons[0]
        value = self.code.source(only.comparator)
        zero = value in ("0", "0.0", "False")
        one = value in ("1", "1.0", "True")
        if isinstance(only.operator, cst.Equal) and (zero or one):
            return inner if one else _other(inner)
        if isinstance(only.operator, cst.NotEqual) and (zero or one):
            return _other(inner) if one else inner
        return inner if isinstance(only.operator, cst.GreaterThan) and zero else ""

    def _is_bool(self, node: cst.BaseExpression) -> bool:
        """Whether ``~`` of a mask is its contrary: of the numbers 0 and 1 it is not."""
        source = self.code.source(node)
        if isinstance(node, cst.Name):
            found = self.tensors.given(node)
            return found is not None and found[1] is None and self._is_bool(found[0])
        if isinstance(node, cst.Attribute) and is_self(node.value):
            made = self.tensors.settled(node, tensor=True)
            return made is not None and self._is_bool(made)
        if isinstance(node, cst.Subscript):
            return self._is_bool(node.value)
        return isinstance(node, cst.Comparison) or "bool" in source

    def _cut(self, node: cst.Call, name: str, whole: str, *, added: bool) -> str:
        """``torch.tril(torch.ones(n, n))``, ``torch.ones(n, n).triu(1)``"""
        if whole:
            given, diagonal = argument(node, "input", 0), argument(node, "diagonal", 1)
        else:
            given = node.func.value if isinstance(node.func, cst.Attribute) else None
            diagonal = argument(node, "diagonal", 0)
        by = self.code.source(diagonal).replace("+", "") if diagonal is not None else "0"
        if given is None or not self._is_square(given, added=added):
            return ""
        if name == "tril":
            return "lower" if by == "0" and not added else ""
        return "upper" if by == "1" else ""

    def _is_square(self, node: cst.BaseExpression, *, added: bool) -> bool:
        """``torch.ones(n, n)``; of what is added ``torch.full((n, n), float("-inf"))``."""
        while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if last_name(node.func) not in ("bool", "to", "float", "cuda", "byte", "int"):
                break
            node = node.func.value
        if not isinstance(node, cst.Call):
            return False
        whole = self.code.qualified(node.func)
        sizes: list[cst.BaseExpression] = [arg.value for arg in node.args if arg.keyword is None]
        if added:
            fill = argument(node, "fill_value", 1)
            number = self._number(fill) if whole == "torch.full" and fill is not None else None
            if number != -math.inf:
                return False
            sizes = sizes[:1]
        elif whole != "torch.ones":
            return False
        if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
            sizes = [one.value for one in sizes[0].elements]
        texts = [self.code.source(one) for one in sizes]
        return len(texts) >= 2 and texts[-1] == texts[-2] != "1" and set(texts[:-2]) <= {"1"}

    def _keeps_square(self, node: cst.Call, name: str) -> bool:
        """Whether the last two dimensions stay the same square."""
        args = [self.code.source(arg.value) for arg in node.args if arg.keyword is None]
        if name in ("view", "reshape", "expand"):
            ones = {"1", "-1"} if name == "expand" else {"1"}
            same = len(args) >= 2 and args[-1] == args[-2] and (name != "expand" or args[-1] == "-1")
            return same and set(args[:-2]) <= ones and "-1" not in args[-2:] * (name != "expand")
        if name == "unsqueeze":
            return args == ["0"] or (args == ["1"] and "unsqueeze(0)" in self.code.source(node))
        return True

    def _is_square_part(self, node: cst.Subscript) -> bool:
        """``mask[:, :, :T, :T]``: as many rows as columns, from the first."""
        parts = [one.slice for one in node.slice]
        texts = [self.code.source(one) for one in parts]
        new = [text for text in texts if text == "None"]
        plain = [text for text in texts if text not in ("None", "...")]
        if any(text not in (":", "0") for text in plain[:-2]) or len(new) != len(texts[: len(new)]):
            return texts == ["None"] * len(texts) or texts in (["None", "None", ":", ":"], ["None", ":", ":"])
        if len(plain) < 2:
            return bool(new) and not plain
        rows, columns = parts[-2], parts[-1]
        if not isinstance(rows, cst.Slice) or not isinstance(columns, cst.Slice):
            return False
        if any(one.lower is not None or one.step is not None for one in (rows, columns)):
            return False
        return texts[-1] == texts[-2]

    def _cannot(self, why: str, mask: Mask) -> Cannot:
        return Cannot(why, str(self.code.path), self.code.line(mask.piece.node))


def _other(triangle: str) -> str:
    return {"lower": "upper", "upper": "lower"}.get(triangle, "")


def _inverted(code: Code, node: cst.BaseExpression, text: str) -> str:
    """What holds where a mask does not."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        inner = code.source(node.expression)
        return inner if inner in text else f"~({text})"
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        operator = node.comparisons[0].operator
        if isinstance(operator, cst.Equal | cst.NotEqual) and text.count("==") + text.count("!=") == 1:
            return text.replace("==", "!=") if isinstance(operator, cst.Equal) else text.replace("!=", "==")
    return f"~{atom(node, text)}"
