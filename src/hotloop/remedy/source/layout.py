"""How added text is laid out: as the call, the imports and the lines around it are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Final

import libcst as cst

from hotloop.remedy.source.code import Code, spread_of
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.text import Edit

if TYPE_CHECKING:
    from hotloop.remedy.source.plan import Plan

#: Longer lines are broken where the file's own longest is not longer.
_LIMIT: Final = 88
_ENDS_HEAD: Final = (cst.FunctionDef, cst.ClassDef, cst.For, cst.While, cst.With)


def with_keywords(
    code: Code,
    call: cst.Call,
    keywords: Mapping[str, str],
    others: Sequence[Edit] = (),
    beneath: Set[str] = frozenset(),
) -> list[Edit]:
    """Keywords behind the last argument: on lines of their own where the arguments are.

    ``others`` are the file's other changes: they move what stands behind them on a line. Keywords of the
    names in ``beneath`` may be among what the call spreads by ``**``, on another way to it: then those count.
    """
    words = [f"{name}={value}" for name, value in keywords.items()]
    text = code.text.text
    start, end = code.span(call)
    close = end - 1
    if not call.args:
        inside = text[code.span(call.func)[1] :].index("(") + code.span(call.func)[1] + 1
        return [Edit(start=inside, end=inside, new=", ".join(words))]
    spread = spread_of(call)
    if spread is not None:  # what is spread stays last
        words = [f"{name}={value}" for name, value in keywords.items() if name not in beneath]
        under = {name: value for name, value in keywords.items() if name in beneath}
        front = [_in_front(code, spread, words)] if words else []
        return [*front, *_beneath(code, spread, under)] if under else front
    last = call.args[-1]
    behind = behind_of(code, last)
    comma = _comma(code, last)
    begin = begin_of(code, last)
    own_lines = not text[code.line_start(begin) : begin].strip()
    if own_lines:
        return _on_lines(code, last, behind, comma, close, words)
    if comma >= 0:
        return [Edit(start=comma + 1, end=comma + 1, new="".join(f" {word}," for word in words))]
    line = code.text.text[code.line_start(start) : code.line_end(close)]
    added = ", ".join(["", *words])
    limit = max(_LIMIT, max(map(len, text.splitlines()), default=0))
    first = code.span(call.args[0])[0]
    alone = "\n" not in text[start:end] and not text[end : code.line_end(end)].partition("#")[0].strip()
    moved = _moved(others, code.line_start(start), close)
    if alone and len(line) + moved + len(added) > limit:
        column = first - code.line_start(first) + _moved(others, code.line_start(start), first)
        added = "," + code.text.newline + " " * column + ", ".join(words)
        if "\t" in code.indent(first):
            added = ", ".join(["", *words])
    return [Edit(start=behind, end=behind, new=added)]


def _moved(others: Sequence[Edit], begin: int, end: int) -> int:
    inside = [edit for edit in others if begin <= edit.start and edit.end <= end and edit.start < end]
    return sum(len(edit.new) - (edit.end - edit.start) for edit in inside)


def _in_front(code: Code, arg: cst.Arg, words: Sequence[str]) -> Edit:
    begin = begin_of(code, arg)
    own_line = not code.text.text[code.line_start(begin) : begin].strip()
    between = code.text.newline + code.indent(begin) if own_line else " "
    return Edit(start=begin, end=begin, new="".join(f"{word},{between}" for word in words))


def _beneath(code: Code, spread: cst.Arg, keywords: Mapping[str, str]) -> list[Edit]:
    """``**options`` becomes ``**{"num_workers": 2, **options}``: what the options have counts."""
    text = code.text.text
    quote = "'" if text.count("'") > text.count('"') else '"'
    entries = "".join(f"{quote}{name}{quote}: {value}, " for name, value in keywords.items())
    start, end = code.span(spread.value)
    if isinstance(spread.value, cst.Dict) and spread.value.elements:
        return [Edit(start=start + 1, end=start + 1, new=entries)]
    plain = isinstance(spread.value, cst.Name | cst.Attribute | cst.Subscript | cst.Call)
    opens, closes = ("**", "}") if plain else ("**(", ")}")
    return [Edit(start=start, end=start, new=f"{{{entries}{opens}"), Edit(start=end, end=end, new=closes)]


def _on_lines(
    code: Code, last: cst.Arg, behind: int, comma: int, close: int, words: Sequence[str]
) -> list[Edit]:
    text, newline = code.text.text, code.text.newline
    indent = code.indent(begin_of(code, last))
    line_end = code.line_end(max(behind, comma))
    edits = [] if comma >= 0 else [Edit(start=behind, end=behind, new=",")]
    tail = "," if comma >= 0 else ""
    lines = ",".join(f"{newline}{indent}{word}" for word in words) + tail
    if line_end > close:  # the bracket closes on the same line
        return [Edit(start=behind, end=behind, new="," + lines.removesuffix(tail))]
    assert text[line_end : line_end + 1] in ("\n", "\r")
    return [*edits, Edit(start=line_end, end=line_end, new=lines)]


def begin_of(code: Code, arg: cst.Arg) -> int:
    """Where an argument begins, at its keyword, stars or opening parentheses."""
    if arg.keyword is not None:
        return code.span(arg.keyword)[0]
    begin = code.span(arg.value)[0]
    for mark in [*("(" for _ in getattr(arg.value, "lpar", ())), arg.star]:
        begin = code.text.text.rindex(mark, 0, begin) if mark else begin
    return begin


def behind_of(code: Code, arg: cst.Arg) -> int:
    """Behind an argument, its closing parentheses included."""
    end = code.span(arg.value)[1]
    for _ in getattr(arg.value, "rpar", ()):
        end = code.text.text.index(")", end) + 1
    return end


def _comma(code: Code, arg: cst.Arg) -> int:
    """Where the comma behind an argument stands, -1 for none."""
    if not isinstance(arg.comma, cst.Comma):
        return -1
    gap = re.compile(r"(?:\s|\\\r?\n|#[^\n]*\n)*,").match(code.text.text, behind_of(code, arg))
    return gap.end() - 1 if gap else -1


def after_imports(code: Code) -> tuple[int, bool]:
    """Behind the last import at the head of a file, else behind its docstring; whether there is one."""
    found: cst.CSTNode | None = None
    imported = False
    for at, statement in enumerate(code.module.body):
        small = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        if small and isinstance(small[0], cst.Import | cst.ImportFrom):
            found, imported = statement, True
        elif at == 0 and small and isinstance(small[0], cst.Expr):
            found = statement
        elif isinstance(statement, _ENDS_HEAD) or "__name__" in code.source(statement)[:40]:
            break
    if found is None:
        return len(code.text.text) - len(code.text.text.lstrip()) if not code.module.header else _header(
            code
        ), False
    end = code.span(found)[1]
    return code.line_end(max(end - 1, 0)), imported


def _header(code: Code) -> int:
    """Behind the comments that a file begins with."""
    first = code.module.body[0] if code.module.body else None
    return code.line_start(code.span(first)[0]) if first is not None else len(code.text.text)


def with_statements(code: Code, statements: Sequence[str]) -> Edit:
    """Imports directly behind the others, then a blank line and the rest."""
    at, _ = after_imports(code)
    newline = code.text.newline
    others = [s for s in statements if not s.startswith(("import ", "from "))]
    imports = _joined([s for s in statements if s not in others])
    lines = [*imports, *(["", *others] if others else [])]
    text = code.text.text
    if at < len(text) and text[at] in "\r\n" and at > 0 and text[at - 1] not in "\r\n":
        new = "".join(newline + line for line in lines)
        following = text[at:].lstrip("\r\n")[:1]
        blank = text[at:].startswith((newline * 2,)) or not following
        return Edit(start=at, end=at, new=new + ("" if blank or not others else newline))
    return Edit(start=at, end=at, new="".join(line + newline for line in [*imports, *others]))


def _joined(imports: Sequence[str]) -> list[str]:
    """Imports from one module as one line."""
    found: dict[str, list[str]] = {}
    for line in imports:
        module, _, names = line.partition(" import ")
        found.setdefault(module, []).append(names)
    return [f"{module} import {', '.join(names)}" if names[0] else module for module, names in found.items()]


def before(plan: Plan, code: Code, node: cst.CSTNode, lines: Sequence[str]) -> None:
    """Statements in front of another one, in its block."""
    start = code.span(node)[0]
    indent = _block_indent(code, node)
    new = "".join(f"{indent}{line}{code.text.newline}" for line in lines)
    plan.insert(code, code.line_start(start), new, "; ".join(lines))


def behind(plan: Plan, code: Code, node: cst.CSTNode, lines: Sequence[str], says: str = "") -> None:
    """Statements behind another one, in its block."""
    start, end = code.span(node)
    indent = _block_indent(code, node)
    new = "".join(f"{code.text.newline}{indent}{line}" for line in lines)
    plan.insert(code, code.line_end(max(start, end - 1)), new, says or "; ".join(lines))


def wrap(plan: Plan, code: Code, nodes: Sequence[cst.CSTNode], head: str) -> None:
    """Statements of one block put one level deeper, under ``head``."""
    first = code.line_start(code.span(nodes[0])[0])
    last = code.line_end(code.span(nodes[-1])[1] - 1)
    indent = _block_indent(code, nodes[0])
    unit = "\t" if "\t" in indent else code.module.default_indent
    plan.insert(code, first, f"{indent}{head}{code.text.newline}", head)
    at = first
    while at < last:
        end = code.line_end(at)
        if code.text.text[at:end].strip():
            plan.edit(code.text, at, at, unit)
        at = code.text.text.find("\n", end) + 1 or last


def require_own_line(code: Code, node: cst.CSTNode) -> None:
    """Raises Cannot where other statements share the line that one begins in."""
    start = code.span(node)[0]
    if code.text.text[code.line_start(start) : start].strip():
        raise Cannot("other statements stand on this line", str(code.path), code.line(node))


def _block_indent(code: Code, node: cst.CSTNode) -> str:
    """The blanks before a statement. Raises Cannot where others share its line."""
    start = code.span(node)[0]
    before_it = code.text.text[code.line_start(start) : start]
    behind_it = code.text.text[code.span(node)[1] : code.line_end(max(start, code.span(node)[1] - 1))].strip()
    if before_it.strip() or (behind_it and not behind_it.startswith(("#", ";"))):
        raise Cannot("other statements stand on this line", str(code.path), code.line(node))
    return before_it


def without(plan: Plan, code: Code, whole: cst.Dict, gone: Sequence[cst.DictElement]) -> None:
    """Entries left out of a dictionary, with lines that are their own. Raises Cannot."""
    text, elements = code.text.text, list(whole.elements)
    spans = [_entry(code, one) for one in elements]
    for at, one in enumerate(elements):
        if one not in gone:
            continue
        start, end = spans[at]
        shown = " ".join(text[start:end].split())
        comma = re.compile(r"\s*,").match(text, end)
        behind = comma.end() if comma else end
        line, rest = code.line_start(start), text[behind : code.line_end(behind)].strip()
        if not text[line:start].strip() and (not rest or rest.startswith("#")):
            start, end = line, code.line_end(behind) + len(code.text.newline)
        elif all(other in gone for other in elements[:at]):
            end = spans[at + 1][0]
        else:
            start = spans[at - 1][1]
        if "#" in text[start : spans[at][0]]:
            raise Cannot("a comment stands between the entries", str(code.path), code.line(one))
        plan.remove(code, start, end, f"{shown if len(shown) <= 60 else shown[:57] + '...'} left out")


def _entry(code: Code, element: cst.BaseDictElement) -> tuple[int, int]:
    """From the key, or the stars, of an entry to behind its value and the value's parentheses."""
    text = code.text.text
    start, end = code.span(element.value)
    key = element.key if isinstance(element, cst.DictElement) else None
    start = code.span(key)[0] if key is not None else text.rindex("**", 0, start)
    for _ in element.value.rpar:
        end = text.index(")", end) + 1
    return start, end


def atom(node: cst.BaseExpression, text: str) -> str:
    """A text that a method can be called on, or an operator put before."""
    plain = isinstance(node, cst.Name | cst.Attribute | cst.Subscript | cst.Call)
    return text if plain else f"({text})"


def enclosed(code: Code, node: cst.BaseExpression) -> str:
    """The text of an expression, with parentheses of its own."""
    return f"{'(' * len(node.lpar)}{code.source(node)}{')' * len(node.rpar)}"
