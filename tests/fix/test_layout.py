"""Added text changes what it says and nothing else: on calls of real files, however they are laid out."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

from hotloop.fix.edits import with_keywords
from hotloop.source.code import Code
from hotloop.source.text import decoded, edited, read

ROOT = Path(__file__).resolve().parents[2]
#: Files of many hands: ours, the golden sources, and the standard library's.
FILES = [
    ROOT / "src" / "hotloop" / "cli" / "audit.py",
    Path(ast.__file__).parent / "calendar.py",
    Path(ast.__file__).parent / "textwrap.py",
    Path(ast.__file__).parent / "json" / "tool.py",
]


@pytest.mark.parametrize("path", [path for path in FILES if path.exists()], ids=lambda path: path.name)
def test_a_keyword_is_added_to_any_call_and_comments_stay(path: Path) -> None:
    code = Code(read(path))
    comments = _comments(code.text.text)
    for call in list(code.nodes(ast.Call))[::4]:
        if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp):
            continue  # must be parenthesized first: refused, because the result does not parse
        new = edited(code.text.text, with_keywords(code, call, {"added_": "1", "too_": "2"}))
        before, after = _calls(code.text.text), _calls(new)
        assert len(after) == len(before)
        differ = [(a, b) for a, b in zip(before, after, strict=True) if a != b and "added_" in b]
        assert any(set(b) - set(a) == {"added_", "too_"} for a, b in differ), code.source(call)
        assert all(set(b) - set(a) <= {"added_", "too_"} for a, b in differ)
        assert _comments(new) == comments


def _calls(text: str) -> list[tuple[str, ...]]:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [tuple(keyword.arg or "**" for keyword in call.keywords) for call in calls]


def _comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize(
    "call",
    [
        "f()", "f( )", "f(\n)", "f(a)", "f(a, )", "f(a,\n  b)", "f(\n  a\n)", "f(\n  a,  # one\n  # two\n)",
        "f(\n  a  # one\n  ,\n)", "f(\n    (a)\n)", "f((a),)", "f(*a)", "f(*a, **b)", "f(**b,)",
        "f(\n    *a,\n    **b\n)", "f(a)(b)", "(f)(a)", "f(a, b=[\n  1,\n])", "f(a, b=lambda: (1,\n  2))",
        "f(a, 'text with ) and ,')", "f(a) # f(b)", "f(a, \\\n  b)", "f(\ta\t)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_layouts(call: str, newline: str) -> None:
    text = f"x = {call}\n".replace("\n", newline)
    code = Code(decoded(Path("a.py"), text.encode()))
    node = code.nodes(ast.Call)[0]
    new = edited(text, with_keywords(code, node, {"added_": "1"}))
    assert sum("added_" in names for names in _calls(new)) == 1
    assert _comments(new) == _comments(text)
    assert newline == "\n" or "\n" not in new.replace("\r\n", "")
