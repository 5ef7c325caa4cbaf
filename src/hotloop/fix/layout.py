"""How added text is laid out: as the call, the imports and the lines around it are."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence, Set
from typing import Final

from hotloop.source.code import Code
from hotloop.source.nodes import DEFINITIONS, spread_of, text_of
from hotloop.source.text import Edit
from hotloop.source.tokens import plain, tokens_of

_ENDS_HEAD: Final = (*DEFINITIONS, ast.For, ast.AsyncFor, ast.While, ast.With)


def with_keywords(
    code: Code,
    call: ast.Call,
    keywords: Mapping[str, str],
    beneath: Set[str] = frozenset(),
) -> list[Edit]:
    """Keywords behind the last argument: on lines of their own where the arguments are.

    Those of the names in ``beneath`` may be among what the call spreads by ``**``: then these count.
    """
    words = [f"{name}={value}" for name, value in keywords.items()]
    text, end = code.text.text, code.span(call)[1]
    given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=code.begin)
    if not given:
        opening = tokens_of(code).after(tokens_of(code).outer(call.func)[1])
        inside = opening.end if opening is not None else end - 1
        return [Edit(start=inside, end=inside, new=", ".join(words))]
    spread = spread_of(call)
    if spread is not None:  # what is spread stays last
        words = [f"{name}={value}" for name, value in keywords.items() if name not in beneath]
        under = {name: value for name, value in keywords.items() if name in beneath}
        front = [_in_front(code, code.span(spread)[0], words)] if words else []
        return [*front, *_beneath(code, spread.value, under)] if under else front
    begin, behind = _extent(code, given[-1])
    comma = tokens_of(code).comma_after(behind)
    if not text[code.line_start(begin) : begin].strip():
        return _on_lines(code, begin, behind, comma, end - 1, words)
    if comma >= 0:
        return [Edit(start=comma + 1, end=comma + 1, new="".join(f" {word}," for word in words))]
    return [Edit(start=behind, end=behind, new=", ".join(["", *words]))]


def _extent(code: Code, given: ast.expr | ast.keyword) -> tuple[int, int]:
    """An argument from its keyword, stars or opening parentheses to behind its closing ones."""
    tokens = tokens_of(code)
    if isinstance(given, ast.keyword | ast.Starred):
        return code.span(given)[0], tokens.outer(given.value)[1]
    return tokens.outer(given)


def _in_front(code: Code, begin: int, words: Sequence[str]) -> Edit:
    own_line = not code.text.text[code.line_start(begin) : begin].strip()
    between = code.text.newline + code.indent(begin) if own_line else " "
    return Edit(start=begin, end=begin, new="".join(f"{word},{between}" for word in words))


def _beneath(code: Code, spread: ast.expr, keywords: Mapping[str, str]) -> list[Edit]:
    """``**options`` becomes ``**{"num_workers": 2, **options}``: what the options have counts."""
    text = code.text.text
    quote = "'" if text.count("'") > text.count('"') else '"'
    entries = "".join(f"{quote}{name}{quote}: {value}, " for name, value in keywords.items())
    start, end = code.span(spread)
    if isinstance(spread, ast.Dict) and spread.values:
        return [Edit(start=start + 1, end=start + 1, new=entries)]
    opens, closes = ("**", "}") if plain(spread) else ("**(", ")}")
    return [Edit(start=start, end=start, new=f"{{{entries}{opens}"), Edit(start=end, end=end, new=closes)]


def _on_lines(
    code: Code, begin: int, behind: int, comma: int, close: int, words: Sequence[str]
) -> list[Edit]:
    newline, indent = code.text.newline, code.indent(begin)
    line_end = code.line_end(max(behind, comma))
    tail = "," if comma >= 0 else ""
    lines = ",".join(f"{newline}{indent}{word}" for word in words) + tail
    if line_end > close:  # the bracket closes on the same line
        return [Edit(start=behind, end=behind, new="," + lines.removesuffix(tail))]
    edits = [] if comma >= 0 else [Edit(start=behind, end=behind, new=",")]
    return [*edits, Edit(start=line_end, end=line_end, new=lines)]


def after_imports(code: Code) -> int:
    """Behind the last import at the head of a file, else behind its docstring and its first comments."""
    found: ast.stmt | None = None
    for at, statement in enumerate(code.module.body):
        is_import = isinstance(statement, ast.Import | ast.ImportFrom)
        if is_import or (
            at == 0 and isinstance(statement, ast.Expr) and text_of(statement.value) is not None
        ):
            found = statement
        elif isinstance(statement, _ENDS_HEAD) or "__name__" in code.source(statement)[:40]:
            break
    if found is not None:
        return code.line_end(max(code.span(found)[1] - 1, 0))
    first = code.module.body[0] if code.module.body else None
    return code.line_start(code.span(first)[0]) if first is not None else len(code.text.text)


def with_statements(code: Code, statements: Sequence[str]) -> Edit:
    """Imports directly behind the others, then a blank line and the rest."""
    at = after_imports(code)
    newline = code.text.newline
    others = [s for s in statements if not s.startswith(("import ", "from "))]
    imports = _joined([s for s in statements if s not in others])
    lines = [*imports, *(["", *others] if others else [])]
    text = code.text.text
    if at < len(text) and text[at] in "\r\n" and at > 0 and text[at - 1] not in "\r\n":
        new = "".join(newline + line for line in lines)
        blank = text[at:].startswith(newline * 2) or not text[at:].lstrip("\r\n")
        return Edit(start=at, end=at, new=new + ("" if blank or not others else newline))
    return Edit(start=at, end=at, new="".join(line + newline for line in [*imports, *others]))


def _joined(imports: Sequence[str]) -> list[str]:
    """Imports from one module as one line."""
    found: dict[str, list[str]] = {}
    for line in imports:
        module, _, names = line.partition(" import ")
        found.setdefault(module, []).append(names)
    return [f"{module} import {', '.join(names)}" if names[0] else module for module, names in found.items()]
