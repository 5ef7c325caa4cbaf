"""What a run says, and every help, is there in each language; code and JSON stay English."""

from __future__ import annotations

import argparse
import ast
import gettext
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from hotloop import language
from hotloop.cli.main import VERBS, _in_language, main
from hotloop.remedy import catalogue
from hotloop.report import words
from hotloop.source.nodes import last_name

SOURCE = Path(language.__file__).parent
#: Where findings get their sentences, and where edits, launches and options are refused.
SAYING = ("diagnose/", "findings/", "audit/rules/", "cli/", "fix/", "remedy/", "tune/", "whatif/")
#: What is raised here ends the user's own script, which speaks English; and scripts of a shell.
ENGLISH_ONLY = re.compile(r"feed/(?!baking)|cli/completion")
#: A word that is no part of a name, a path or a pattern; a sentence has three.
WORD = re.compile(r"(?<![\w.=/-])[a-z]{2,}(?![\w.=(/])")
#: Code, markup, and commands to copy.
CODE = re.compile(r"^[\"\[\n]|[\\|<$]|  # |^pip |^hotloop [a-z-]+( (-|\[|[A-Z]+\b)|$)")
#: What stays where a template takes the rest of a text for a name: words that no translation has so.
REST = re.compile(r"(?<![\w.=/-])[a-z]{2,}(?:,? [a-z]{2,})+(?![\w.=(/])")
LANGUAGES = sorted(path.name for path in language.FOLDER.iterdir())


@pytest.fixture(params=LANGUAGES)
def other(request: pytest.FixtureRequest) -> Iterator[str]:
    language.choose(request.param)
    yield request.param
    language.choose("en")


def texts() -> Iterator[str]:
    for one in catalogue.remedies():
        yield from (one.summary, one.alters, f"{one.effect}, {' and '.join(one.forms)}", f"for {one.answers}")
    yield from words.PHASE_WORDS.values()
    for verb, said in VERBS.items():
        parser = argparse.ArgumentParser()
        importlib.import_module(f"hotloop.cli.{verb.replace('-', '_')}").add_arguments(parser)
        yield from (said, *(action.help or "" for action in parser._actions))


def refusals(nodes: list[ast.AST]) -> set[str]:
    """Names of hotloop's own exceptions, and of functions that return one."""
    found, classes = {"Exception"}, [one for one in nodes if isinstance(one, ast.ClassDef)]
    for _ in range(4):  # classes below each other
        found |= {one.name for one in classes if {*map(last_name, one.bases)} & found}
    return found | {one.name for one in nodes if last_name(getattr(one, "returns", None)) in found}


def sentences(node: ast.AST, least: int, refusing: set[str]) -> Iterator[str]:
    """The texts of at least so many words, where something is refused of one; with 7 in their places, and
    without a clause that may be empty.
    """
    match node:
        case ast.Expr(ast.Constant()) | ast.Call(ast.Attribute(ast.Name("re"))) | ast.Call(ast.Name("_size")):
            return  # no text, or a pattern for what other programs say
        case ast.Constant(str()) | ast.JoinedStr():
            found = (re.sub(r"(?<=[\w)])\0+", "", text).replace("\0", "7") for text in filled(node))
            yield from (one for one in found if len(WORD.findall(one)) >= least and not CODE.search(one))
        case _:
            refused = isinstance(node, ast.Call) and last_name(node.func) in refusing
            for child in ast.iter_child_nodes(node):
                yield from sentences(child, 1 if refused else least, refusing)


def filled(node: ast.AST) -> list[str]:
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.JoinedStr(values):
            return ["".join(one) for one in product(*map(filled, values))]
        case ast.FormattedValue(ast.Constant(value), _, ast.JoinedStr([ast.Constant(form)])):
            return [format(value, form)]  # the head of a table
        case ast.FormattedValue(value):
            return filled(value)
        case ast.IfExp(_, body, other):
            return filled(body) + filled(other)
    return ["\0"]


def test_what_is_found_and_refused_is_there_sentence_by_sentence(other: str) -> None:
    paths = {str(path.relative_to(SOURCE)): path for path in SOURCE.rglob("*.py")}
    trees = {at: ast.parse(path.read_text()) for at, path in paths.items() if not ENGLISH_ONLY.match(at)}
    refusing = refusals([node for tree in trees.values() for node in ast.walk(tree)])
    least = {at: 3 if at.startswith(SAYING) else 99 for at in trees}
    found = {text: at for at, tree in trees.items() for text in sentences(tree, least[at], refusing)}
    cases = "".join(path.read_text() for path in (Path(__file__).parents[1] / "fix/golden").glob("*.case"))
    refused = dict.fromkeys(re.findall(r"(?m)^[a-z-]+: \S+:\d+: (.+)\n    ", cases), "golden")
    assert {"Cannot", "UsageError", "_needed"} <= refusing and len(found) > 1200 and len(refused) > 35
    found |= refused  # with names and numbers in their places
    own = {text: {text, text.strip()} for text in found}  # as a clause, or as a sentence behind another
    others = {text: {*map(language.said, own[text])} - own[text] for text in found}
    spoken = {*REST.findall("\n".join(language._texts.values()))}
    rest = {text: [{*REST.findall(one)} <= spoken for one in others[text]] for text in found}
    assert [(found[text], text) for text in found if not any(rest[text])] == []


def test_no_text_of_a_finding_remedy_verdict_or_help_is_missing(other: str) -> None:
    assert [
        text for text in texts() if text not in ("", "==SUPPRESS==") and language.said(text) == text
    ] == []


def test_a_template_has_the_same_places_in_each_language(other: str) -> None:
    found = gettext.translation("hotloop", language.FOLDER, [other])
    places = re.compile(r"\{\w+\}|%\(\w+\)s|%%")
    wrong = [
        a for a, b in vars(found)["_catalog"].items() if a and {*places.findall(a)} != {*places.findall(b)}
    ]
    assert wrong == []


def test_words_of_the_users_own_command_stay_its_own() -> None:
    theirs = ["python", "train.py", "--lang", "de", "--lr", "3"]
    for given in (["run", *theirs], ["run", "--", *theirs], ["run", "--out", "x", *theirs]):
        assert _in_language(["--lang", "zh", *given]) == given
    language.choose("en")


def test_names_of_the_users_and_long_texts_stay(other: str) -> None:
    assert "memory" in language.said("memory is True, configured False")
    assert language.said("x takes y at this rate; " * 1500).startswith("x takes")
    copied = ['  > 13 | log.info("f() at step")', "    hotloop run -- python train.py f() at x"]
    assert [language.plain(line) for line in copied] == copied
    assert "runs/step" in language.said("error: there is no run folder runs/step")
    page = language.page('<p title="1 step">1 step <code>1 step</code> in f&lt;b&gt;</p>')
    assert "<code>1 step</code>" in page
    assert "1 step <" not in page
    assert "&lt;b&gt;" in page


def test_help_and_errors_speak_the_language_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for given, text in {
        "tune --lang zh --help": "总预算",
        "--lang zh report nothere": "错误：nothere 不存在，或不是文件夹\n提示：",
        "--lang zh run --apply nosuch -- python": "错误：没有改法 'nosuch'\n提示：有：asynchronous",
        "--lang zh run --steps x": "hotloop run：错误：参数 --steps：'x' 不是从 1 起的整数",
        "--lang zh verify --effect x": "hotloop verify：错误：参数 --effect：无效的选择：'x'（可选 ",
        "report --lang xx": "languages: en, zh",
    }.items():
        with pytest.raises(SystemExit):
            sys.exit(main(given.split()))
        assert text in "".join(capsys.readouterr())
    ask = "import sys; sys.addaudithook(lambda kind, of: kind == 'open' and print(of[0]));"
    ask += "from hotloop.cli.main import main; main(['--help'])"
    for name in ("en_US.UTF-8", "zh_CN.UTF-8"):  # the catalogue is read where it is spoken
        env = {**os.environ, "LC_ALL": name}
        done = subprocess.run(
            [sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=True
        )
        assert ("hotloop.mo" in done.stdout) is name.startswith("zh")
    language.choose("en")
