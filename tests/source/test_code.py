"""A parsed file: spans, the order of nodes, the call at a place, and what names mean."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hotloop.source.code import Code, code_of, parsed
from hotloop.source.nodes import argument, chain, entry, last_name, literal, targets_of, text_of
from hotloop.source.text import Edit, Text, decoded, diff, edited
from hotloop.source.tokens import Tokens


def made(text: str) -> Code:
    return Code(Text(path=Path("train.py"), text=text))


def expression(text: str) -> ast.expr:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.Expr)
    return node.value


def names(code: Code, kind: type[ast.AST] = ast.Name) -> list[str]:
    return [code.source(node) for node in code.nodes(kind)]


def test_spans_count_characters_and_lines_end_as_they_do() -> None:
    code = made('grün = "é"\r\nname = grün + f(grün)\r\n')
    call = code.nodes(ast.Call)[0]
    assert code.source(call) == "f(grün)"
    assert code.begin(call) == (2, 15)  # bytes, as code objects count
    assert code.text.text[code.line_start(code.span(call)[0]) : code.line_end(code.span(call)[0])].startswith(
        "name"
    )
    assert code.text.newline == "\r\n"


def test_nodes_come_in_the_order_of_the_file() -> None:
    code = made(
        "@a\ndef f(b=c, *, d: e = g) -> h:\n    return i if j else {k: l, m: n}\np(q, *r, s=t, **u)\n"
    )
    assert names(code) == ["a", "c", "e", "g", "h", "i", "j", "k", "l", "m", "n", "p", "q", "r", "t", "u"]


def test_nodes_under_a_node_are_those_that_it_holds() -> None:
    code = made("a(b(1), c)\nd(2)\n")
    outer = code.nodes(ast.Call)[0]
    assert [code.source(one) for one in code.nodes(ast.Call, outer)] == ["a(b(1), c)", "b(1)"]
    assert code.holds(outer, code.nodes(ast.Call)[1])
    assert not code.holds(outer, code.nodes(ast.Call)[2])


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ({"line": 1, "col": 4}, None),  # both calls begin there
        ({"line": 1, "col": 4, "name": "make"}, "Maker().make(\n    1)"),
        ({"line": 1, "col": 4, "end": (1, 11)}, "Maker()"),
        ({"line": 3, "col": -1}, "f(2)"),
        ({"line": 4, "col": 0}, None),
    ],
)
def test_the_call_that_runs_at_a_place(place: dict[str, int], found: str | None) -> None:
    code = made("x = Maker().make(\n    1)\nf(2)\n\n")
    call = code.call_at(**place)  # type: ignore[arg-type]
    assert (code.source(call) if call else None) == found


def test_a_function_is_found_by_its_first_decorator_too() -> None:
    code = made("class A:\n    @staticmethod\n    def f(): ...\n")
    assert code.function_at("A.f", 2) is code.function_at("A.f", 3) is not None
    assert code.function_at("A.f", 1) is None


def test_the_block_and_the_statement_of_a_node() -> None:
    code = made("if a:\n    b = 1\nelse:\n    c = f(2)\n    d = 3\n")
    statement = code.statement_of(code.nodes(ast.Call)[0])
    assert statement is not None
    assert [code.source(one) for one in code.block_of(statement)] == ["c = f(2)", "d = 3"]


@pytest.mark.parametrize(
    ("imports", "name", "whole"),
    [
        ("import torch", "torch.optim.SGD", "torch.optim.SGD"),
        ("import torch\nimport torch.optim", "torch.optim.SGD", "torch.optim.SGD"),
        ("import torch.optim as o", "o.SGD", "torch.optim.SGD"),
        ("from torch.utils.data.dataloader import DataLoader as D", "D", "torch.utils.data.DataLoader"),
        ("from .data import make", "make", ".data.make"),
        ("import torch\ntorch = 1", "torch.optim", ""),
        ("", "len", ""),
    ],
)
def test_an_imported_name_in_full(imports: str, name: str, whole: str) -> None:
    code = made(f"{imports}\n{name}\n")
    statement = code.module.body[-1]
    assert isinstance(statement, ast.Expr)
    assert code.qualified(statement.value) == whole


def test_an_import_is_shadowed_in_a_function_only() -> None:
    code = made("import torch\ndef f(torch):\n    return torch.x\ntorch.x\n")
    inner, outer = code.nodes(ast.Attribute)
    assert (code.qualified(inner), code.qualified(outer)) == ("", "torch.x")
    assert code.builtin(expression("x")) == "x"


SCOPES = """\
n = 1
class A:
    n = 2
    m = n
    def f(self, k=n):
        return n
def g():
    global n
    n = 3
def h():
    n = 4
    def i():
        nonlocal n
        n += 1
        return [n for n in range(n) if (z := n)]
    return n, z
"""


def test_names_are_bound_as_scopes_have_it() -> None:
    code = made(SCOPES)

    def lines(line: int, name: str) -> list[int]:
        node = next(one for one in code.nodes(ast.Name) if one.lineno == line and one.id == name)
        return [code.line(one.node) for one in code.bindings(node, name)]

    assert lines(4, "n") == lines(5, "n") == [3]  # the class's own
    assert lines(6, "n") == [1, 9]  # not the class's
    assert lines(9, "n") == [1, 9]
    assert lines(14, "n") == lines(16, "n") == [11, 14]
    assert lines(16, "z") == []  # bound in another function
    comprehension = code.nodes(ast.ListComp)[0]
    assert code.bindings(comprehension.elt, "n")[0].scope.node is comprehension
    assert [code.line(one.node) for one in code.bindings(comprehension, "z")] == [15]


def test_a_binding_knows_what_it_is_given() -> None:
    code = made("a = 1\nb, c = 2, 3\nwith open(d) as e: pass\nfor f in a: pass\nd: int = 4\na += 1\n")
    bound = {name: code.global_names(name)[-1].value for name in "abcefd"}
    given = {name: code.source(value) if value else None for name, value in bound.items()}
    assert given == {"a": None, "b": "2", "c": "3", "e": "open(d)", "f": None, "d": "4"}


def test_what_is_no_python_is_refused() -> None:
    assert parsed("def") is None
    assert code_of("print 1") is None
    with pytest.raises(ValueError, match=r"train\.py does not parse"):
        made("def")


def test_questions_about_a_call() -> None:
    call = expression("torch.f(1, a, *b, key=2, **c)")
    assert isinstance(call, ast.Call)
    assert last_name(call.func) == "f"
    assert chain(expression("self.a[0].b().c")) == "self.a.b.c"
    assert literal(argument(call, "x", 0))
    assert text_of(argument(call, "key")) is None
    assert argument(call, "x", 2) is None  # behind a star
    assert [last_name(one) for one in targets_of(ast.parse("a, (b, *c.d) = 1").body[0])] == ["a", "b", "d"]
    assert entry(expression("{'a': 1, **b, 'a': 2}"), "a").value == 2  # type: ignore[union-attr]
    assert entry(expression("dict(a=3)"), "a").value == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "outer"),
    [
        ("f((a))", "(a)"),
        ("f(a)", "a"),
        ("f((a), key=b)", "(a)"),
        ("f(key=((a)))", "((a))"),
        ("x = (  # why\n    a\n)", "(  # why\n    a\n)"),
        ("((a) + b)", "(a)"),
        ("(a)(b)", "(a)"),
        ("class A(a): pass", "a"),
        ("with (a): pass", "(a)"),
        ("@(a)\ndef f(): pass", "(a)"),
    ],
)
def test_the_parentheses_that_are_an_expression_s_own(text: str, outer: str) -> None:
    code = made(text + "\n")
    name = next(one for one in code.nodes(ast.Name) if one.id == "a")
    start, end = Tokens(code).outer(name)
    assert code.text.text[start:end] == outer


@pytest.mark.parametrize("end", ["\n", "\nif a:\n    b"])  # the last line of a file may not end
def test_commas_and_comments_are_found(end: str) -> None:
    code = made(f"f(\n    a,  # one\n    b\n){end}")
    tokens = Tokens(code)
    first, second = code.nodes(ast.Call)[0].args
    assert tokens.comma_after(code.span(first)[1]) == code.text.text.index(",")
    assert tokens.comma_after(code.span(second)[1]) == -1
    assert tokens.has_comment(*code.span(code.nodes(ast.Call)[0]))
    assert not tokens.has_comment(0, 5)


def test_a_file_is_edited_by_spans_and_written_back(tmp_path: Path) -> None:
    text = decoded(tmp_path / "a.py", b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    new = edited(text.text, [Edit(start=4, end=5, new="3"), Edit(start=0, end=1, new="c")])
    assert text.encoded(new) == b"\xef\xbb\xbfc = 3\r\nb = 2\r\n"
    with pytest.raises(ValueError, match="overlap"):
        edited("abc", [Edit(start=0, end=2, new=""), Edit(start=1, end=3, new="")])
    assert "-a = 1" in diff("a.py", b"a = 1\n", b"a = 2\n")
    assert diff("a.py", b"a\n", b"a\n") == ""
