"""The masks of attention by hand as the fused call takes them: causal, of truth values, added."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import libcst as cst

from hotloop.remedy.source.attention import Mask
from hotloop.remedy.source.code import Code, argument, is_self, last_name
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.tensors import Tensors, attributes, buffers, derives
from hotloop.remedy.source.twice import is_changed_at

#: A score is lost beside this in float32, up to 32: added and put in its place are the same.
_LOST: Final = 1e9
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
class Fill:
    """What stands where nothing is looked at: ``text``, a number of this size at most."""

    text: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the call is given: ``attn_mask=TEXT``, or that it is causal (where ``only_if`` holds)."""

    text: str = ""
    causal: bool = False
    added: bool = False  # a finite number is added, in place of scores


class Masks:
    """The masks of one attention. ``text`` writes a node as it is to stand in the call."""

    def __init__(self, code: Code, codes: Sequence[Code], tensors: Tensors, torch: str, query: str) -> None:
        self.code, self.codes, self.tensors, self.torch, self.query = code, codes, tensors, torch, query

    def given(self, masks: Sequence[Mask], texts: dict[int, str], *, alike: bool) -> Given:
        """What they are together. ``texts``: of the nodes. Raises Cannot."""
        fills = [self._fill(mask) for mask in masks]
        if len(masks) == 1 and masks[0].only_if is None and alike and self._is_causal(masks[0], fills[0]):
            return Given(causal=True)
        pairs = list(zip(masks, fills, strict=True))
        if all(fill is not None and fill.value == -math.inf for fill in fills):
            pairs.sort(key=lambda pair: pair[0].only_if is not None)
        whole: tuple[str, Kind] | None = None
        maybe, added = False, False
        for mask, fill in pairs:
            if maybe:
                raise self._cannot("of several masks one is there at times only", mask)
            new = self._with(whole, mask, fill, texts, only=len(masks) == 1)
            added = added or (new[1] == "float" and fill is not None and fill.value != -math.inf)
            if mask.only_if is not None:
                if whole is not None and whole[1] != new[1]:
                    raise self._cannot("of several masks one is there at times only", mask)
                otherwise = whole[0] if whole is not None else "None"
                test = texts[id(mask.only_if.node)]
                if otherwise != "None" or test != f"{new[0]} is not None":
                    new = f"{new[0]} if {test} else {otherwise}", new[1]
                maybe = whole is None
            whole = new
        return Given(text=whole[0] if whole is not None else "", added=added)

    def _with(
        self, old: tuple[str, Kind] | None, mask: Mask, fill: Fill | None, texts: dict[int, str],
        *, only: bool,
    ) -> tuple[str, Kind]:  # fmt: skip
        """The mask so far with another."""
        node = mask.piece.node
        text = texts[id(node)]
        if fill is None:
            if self._is_of_truth(node):
                raise self._cannot("truth values are added to the scores", mask)
            text = f"-{_atom(node, text)}" if mask.sign == "-" else text
            if old is None:
                return text, "float"
            if old[1] == "float":
                return f"{old[0]} + {text if mask.sign == '+' else f'({text})'}", "float"
            inner = f"({text})" if mask.sign == "-" else _atom(node, text)
            return f'{inner}.masked_fill(~({old[0]}), float("-inf"))', "float"
        kept, dropped = _inverted(self.code, node, text), text
        if mask.keeps:
            kept, dropped = text, kept
        if fill.value == -math.inf or (only and self._leaves_one(mask)):
            if old is None:
                return kept, "bool"
            if old[1] == "bool":
                return f"({old[0]}) & ({kept})", "bool"
            return f'({old[0]}).masked_fill({dropped}, float("-inf"))', "float"
        if fill.value > -_LOST:
            words = f"{fill.text} is put where nothing is looked at: a row that is masked whole"
            raise self._cannot(f"{words} would be another one if it were added", mask)
        base = f"{self.torch}.where({dropped}, {fill.text}, 0.0)"
        if mask.keeps:
            base = f"{self.torch}.where({text}, 0.0, {fill.text})"
        if old is None:
            return base, "float"
        before = old[0] if old[1] == "float" else f'{self.torch}.where({old[0]}, 0.0, float("-inf"))'
        return f"{_called(before)}.masked_fill({dropped}, {fill.text})", "float"

    def _is_of_truth(self, node: cst.BaseExpression) -> bool:
        """Whether what is added is made of truth values, which would be taken as a mask."""
        if isinstance(node, cst.Comparison):
            return True
        if isinstance(node, cst.UnaryOperation):
            return isinstance(node.operator, cst.BitInvert | cst.Not)
        if isinstance(node, cst.Name):
            found = self.tensors.given(node)
            return found is not None and found[1] is None and self._is_of_truth(found[0])
        return isinstance(node, cst.Call) and last_name(node.func) == "bool"

    # -- what is filled in -------------------------------------------------------------------------------

    def _fill(self, mask: Mask) -> Fill | None:
        """The number of a mask; None of what is added. Raises Cannot."""
        if mask.fill is None:
            return None
        found = self._number(mask.fill)
        if found is None:
            raise self._cannot("what is put where nothing is looked at is no number that can be told", mask)
        return found

    def _number(self, node: cst.BaseExpression, depth: int = 8) -> Fill | None:
        code = self.code
        text = "".join(code.source(node).split())
        if _INF.match(text):
            negative = text.startswith("-") != ('("-' in text or "('-" in text)
            return Fill(text='float("-inf")', value=-math.inf) if negative else None
        finfo = re.fullmatch(r"(?:-)?torch\.finfo\((.+)\)\.(min|max)", text)
        if finfo is not None and text.startswith("-") == (finfo[2] == "max"):
            what = f"{self.query}.dtype" if finfo[1].endswith(".dtype") else finfo[1]
            return Fill(text=f"{self.torch}.finfo({what}).min", value=-3.4e38)
        if isinstance(node, cst.UnaryOperation | cst.Float | cst.Integer):
            try:
                value = float(text)
            except ValueError:
                return None
            return Fill(text=text, value=value)
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
            owner = code.above(node, cst.ClassDef)
            values = attributes(code, owner, node.attr.value) if owner is not None else []
            return self._number(values[0], depth - 1) if len(values) == 1 else None
        return None

    # -- causal ------------------------------------------------------------------------------------------

    def _is_causal(self, mask: Mask, fill: Fill | None) -> bool:
        """Whether a mask leaves each query the keys up to its own, and nothing else."""
        if fill is None:
            return mask.sign == "+" and self._triangle(mask.piece.node, added=True) == "upper"
        return fill.value <= -_NOTHING and self._leaves_one(mask)

    def _leaves_one(self, mask: Mask) -> bool:
        """Whether what a mask leaves is a lower triangle: no row of it is masked whole."""
        fill = self._fill(mask)
        wanted = "lower" if mask.keeps else "upper"
        small = fill is not None and fill.value <= -_NOTHING
        return small and self._triangle(mask.piece.node) == wanted

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
            return inner(found[0]) if found is not None and not found[1] and not self._is_filled(node) else ""
        if isinstance(node, cst.Attribute) and is_self(node.value):
            made = self._kept(node)
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
            made = self._kept(node)
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
            if number is None or number.value != -math.inf:
                return False
            sizes = sizes[:1]
        elif whole != "torch.ones":
            return False
        if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
            sizes = [one.value for one in sizes[0].elements]
        texts = [self.code.source(one) for one in sizes]
        return len(texts) >= 2 and texts[-1] == texts[-2] and set(texts[:-2]) <= {"1"}

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

    def _is_filled(self, node: cst.Name) -> bool:
        """Whether a tensor of that name is changed in place anywhere in the function."""
        code, function = self.code, self.code.function_of(node)
        return any(
            one.value == node.value and is_changed_at(code, one) and not self._is_bound(one)
            for one in code.nodes(cst.Name, function)
        )

    def _is_bound(self, name: cst.Name) -> bool:
        """Whether a name is given a value, of its own or as one of several."""
        node: cst.CSTNode = name
        while isinstance(self.code.parents.get(node), cst.Element | cst.Tuple | cst.List):
            node = self.code.parents[node]
        return isinstance(self.code.parents.get(node), cst.AssignTarget | cst.AnnAssign)

    def _kept(self, node: cst.Attribute) -> cst.BaseExpression | None:
        """What an attribute of the class is made as, and stays."""
        code, name = self.code, node.attr.value
        owner = code.above(node, cst.ClassDef)
        if owner is None:
            return None
        values = [one for one in (buffers(code, owner).get(name),) if one is not None]
        values += [one for one in attributes(code, owner, name) if code.source(one) != "None"]
        if len(values) != 1:
            return None
        for other in self.codes:
            for one in other.nodes(cst.Attribute):
                if one.attr.value == name and is_changed_at(other, one):
                    makes = isinstance(other.parents.get(one), cst.AssignTarget) and is_self(one.value)
                    of_a_layer = name in ("weight", "bias") and not is_self(one.value)
                    if not makes and not of_a_layer:
                        return None
            if derives(other, owner.name.value):
                return None
        return values[0]

    def _cannot(self, why: str, mask: Mask) -> Cannot:
        return Cannot(why, str(self.code.path), self.code.line(mask.piece.node))


def _called(text: str) -> str:
    """A text that a method is called on."""
    return text if re.fullmatch(r"[\w.]+(\([^()]*(\([^()]*\)[^()]*)*\))?", text) else f"({text})"


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
    return f"~{_atom(node, text)}"


def _atom(node: cst.BaseExpression, text: str) -> str:
    """A text that a method can be called on, or an operator put before."""
    plain = isinstance(node, cst.Name | cst.Attribute | cst.Subscript | cst.Call)
    return text if plain else f"({text})"
