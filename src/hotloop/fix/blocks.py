"""Statements put before, behind and around others of the same block, and entries left out of a dictionary."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from hotloop.diagnose.groups import shortened
from hotloop.fix.edits import Edits
from hotloop.fix.scene import Cannot
from hotloop.source.code import Code
from hotloop.source.tokens import tokens_of

#: Longer calls have each argument on a line of its own.
_WIDTH: Final = 100


def before(plan: Edits, code: Code, node: ast.AST, lines: Sequence[str]) -> None:
    """Statements in front of another one, in its block."""
    start = _start(code, node)
    indent = _block_indent(code, node)
    new = "".join(f"{indent}{line}{code.text.newline}" for line in lines)
    plan.insert(code, code.line_start(start), new, "; ".join(lines))


def behind(plan: Edits, code: Code, node: ast.AST, lines: Sequence[str]) -> None:
    """Statements behind another one, in its block."""
    start, end = code.span(node)
    indent = _block_indent(code, node)
    new = "".join(f"{code.text.newline}{indent}{line}" for line in lines)
    plan.insert(code, code.line_end(max(start, end - 1)), new, "; ".join(lines))


def wrap(plan: Edits, code: Code, nodes: Sequence[ast.AST], head: str) -> None:
    """Statements of one block put one level deeper, under ``head``."""
    first = code.line_start(_start(code, nodes[0]))
    last = code.line_end(code.span(nodes[-1])[1] - 1)
    indent = _block_indent(code, nodes[0])
    plan.insert(code, first, f"{indent}{head}{code.text.newline}", head)
    at = first
    while at < last:
        end = code.line_end(at)
        if code.text.text[at:end].strip():
            plan.edit(code.text, at, at, "\t" if "\t" in indent else unit_of(code))
        at = code.text.text.find("\n", end) + 1 or last


def require_movable(code: Code, node: ast.AST) -> None:
    """Raises Cannot where a statement cannot be put one level deeper."""
    for text in code.nodes((ast.Constant, ast.JoinedStr), node):
        if "\n" in code.source(text):
            raise Cannot.at("a text of several lines stands in it", code, node)


def laid_out(code: Code, at: int, name: str, arguments: Sequence[str], behind: int = 0) -> str:
    """A call at a character; a long one with its arguments on the next line, or each on a line of its own."""
    plain, indent = f"{name}({', '.join(arguments)})", code.indent(at)
    if at - code.line_start(at) + len(plain) + behind <= _WIDTH and "\n" not in plain:
        return plain
    newline = code.text.newline + indent
    inner = newline + unit_of(code) + ", ".join(arguments)
    if len(inner) > _WIDTH:
        inner = "".join(f"{newline}{unit_of(code)}{one}," for one in arguments)
    return f"{name}({inner}{newline})"


def unit_of(code: Code) -> str:
    """What a block of a file is indented by."""
    for node in code.under(code.module):
        body = getattr(node, "body", None)
        if isinstance(node, ast.stmt) and isinstance(body, list) and body[0].lineno > node.lineno:
            outer, inner = (code.indent(code.span(one)[0]) for one in (node, body[0]))
            return inner.removeprefix(outer) or "    "
    return "    "


def require_own_line(code: Code, node: ast.AST) -> None:
    """Raises Cannot where other statements share the line that one begins in."""
    start = _start(code, node)
    if code.text.text[code.line_start(start) : start].strip():
        raise Cannot.at("other statements stand on this line", code, node)


def _start(code: Code, node: ast.AST) -> int:
    """Where a statement begins, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    return code.text.text.rindex("@", 0, code.span(decorators[0])[0]) if decorators else code.span(node)[0]


def _block_indent(code: Code, node: ast.AST) -> str:
    """The blanks before a statement. Raises Cannot where others share its line."""
    require_own_line(code, node)
    start, end = _start(code, node), code.span(node)[1]
    rest = code.text.text[end : code.line_end(max(start, end - 1))].strip()
    if rest and not rest.startswith(("#", ";")):
        raise Cannot.at("other statements stand on this line", code, node)
    return code.text.text[code.line_start(start) : start]


def without(plan: Edits, code: Code, whole: ast.Dict, gone: Sequence[int]) -> None:
    """Entries left out of a dictionary, by their numbers, with lines that are their own. Raises Cannot."""
    text, tokens = code.text.text, tokens_of(code)
    spans = [
        (tokens.outer(key)[0] if key is not None else text.rindex("**", 0, code.span(value)[0]),
         tokens.outer(value)[1])
        for key, value in zip(whole.keys, whole.values, strict=True)
    ]  # fmt: skip
    for at in gone:
        start, end = spans[at]
        words = shortened(text[start:end])
        comma = tokens.comma_after(end)
        behind = comma + 1 if comma >= 0 else end
        line, rest = code.line_start(start), text[behind : code.line_end(behind)].strip()
        if not text[line:start].strip() and (not rest or rest.startswith("#")):
            start, end = line, code.line_end(behind) + len(code.text.newline)
        elif all(other in gone for other in range(at)):
            end = spans[at + 1][0]
        else:
            start = spans[at - 1][1]
        if tokens.has_comment(start, spans[at][0]):
            line = code.line(whole.values[at])
            raise Cannot("a comment stands between the entries", str(code.path), line)
        plan.edit(code.text, start, end, "")
        plan.say(code, spans[at][0], f"{words} left out")
