"""Where the tokens of a file stand: commas, parentheses and comments, which a syntax tree leaves out."""

from __future__ import annotations

import ast
import io
import tokenize
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hotloop.source.code import Code

_BLANK: Final = frozenset([
    tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
])  # fmt: skip


@dataclass(frozen=True)
class Token:
    """One token: its characters and its text."""

    start: int
    end: int
    text: str


class Tokens:
    """The tokens of a file. Raises ValueError where they cannot be told."""

    def __init__(self, code: Code) -> None:
        self._code = code
        text = code.text.text
        starts = [0]
        while (at := text.find("\n", starts[-1])) >= 0:
            starts.append(at + 1)
        self._tokens: list[Token] = []
        self.comments: list[Token] = []
        try:
            for kind, string, begin, end, _ in tokenize.generate_tokens(io.StringIO(text, "").readline):
                if kind not in _BLANK:  # those may stand behind a last line that does not end
                    first, last = starts[begin[0] - 1] + begin[1], starts[end[0] - 1] + end[1]
                    found = self.comments if kind == tokenize.COMMENT else self._tokens
                    found.append(Token(first, last, string))
        except (tokenize.TokenError, IndentationError, IndexError) as error:
            raise ValueError(f"the tokens of {code.path} cannot be told") from error
        self._starts = [token.start for token in self._tokens]

    def after(self, offset: int) -> Token | None:
        """The first token that begins at a character or behind it."""
        at = bisect_left(self._starts, offset)
        return self._tokens[at] if at < len(self._tokens) else None

    def before(self, offset: int) -> Token | None:
        """The last token that begins before a character."""
        at = bisect_left(self._starts, offset) - 1
        return self._tokens[at] if at >= 0 else None

    def comma_after(self, offset: int) -> int:
        """Where the comma stands that is the next token, -1 where another one is."""
        token = self.after(offset)
        return token.start if token is not None and token.text == "," else -1

    def has_comment(self, start: int, end: int) -> bool:
        """Whether a comment begins within these characters."""
        return any(start <= one.start < end for one in self.comments)

    def outer(self, node: ast.AST) -> tuple[int, int]:
        """The characters of an expression with the parentheses around it that are its own."""
        first, last = self._code.span(node)
        low, high = self._limits(node)
        while True:
            left, right = self.before(first), self.after(last)
            if left is None or right is None or (left.text, right.text) != ("(", ")"):
                return first, last
            if left.start < low or right.end > high:
                return first, last
            first, last = left.start, right.end

    def enclosed(self, node: ast.AST) -> str:
        """The text of an expression, with the parentheses that are its own."""
        start, end = self.outer(node)
        return self._code.text.text[start:end]

    def _limits(self, node: ast.AST) -> tuple[int, int]:
        """The characters that parentheses of a node may stand in: those of a call are not its argument's."""
        above = self._code.parents.get(node)
        if isinstance(above, ast.keyword | ast.withitem | ast.comprehension):
            node, above = above, self._code.parents.get(above)
        if above is None:
            return 0, len(self._code.text.text)
        low, high = self._code.span(above)
        opening = None
        if isinstance(above, ast.Call) and node is not above.func:
            opening = self.after(self.outer(above.func)[1])
        elif isinstance(above, ast.MatchClass) and node is not above.cls:
            opening = self.after(self._code.span(above.cls)[1])
        if opening is not None:
            return opening.end, high - 1
        if isinstance(above, ast.ClassDef) and node in [*above.bases, *above.keywords]:
            high = self._code.span(above.body[0])[0]
            opening = next(t for t in self._tokens if t.start >= low and t.text == "(")
            closing = [t for t in self._tokens if t.end <= high and t.text == ")"][-1]
            return opening.end, closing.start
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):  # a decorator
            return 0, low
        return low, high


def plain(node: ast.expr) -> bool:
    """Whether a method can be called on an expression as it is written, without parentheses."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)


def atom(node: ast.expr, text: str) -> str:
    """A text that a method can be called on, or an operator put before."""
    return text if plain(node) else f"({text})"


@lru_cache(maxsize=64)
def tokens_of(code: Code) -> Tokens:
    """The tokens of a file, kept while it is edited."""
    return Tokens(code)
