"""What a run says, and every help, is there in each language; code and JSON stay English."""

from __future__ import annotations

import argparse
import ast
import gettext
import importlib
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from hotloop import language
from hotloop.cli.main import VERBS, _in_language, main
from hotloop.diagnose import bottleneck
from hotloop.findings import ENTRIES
from hotloop.phases import CLASSES
from hotloop.remedy import catalogue
from hotloop.report import words

SOURCE = Path(language.__file__).parent
#: Where findings get their sentences.
RULES = [*(SOURCE / "diagnose").rglob("*.py"), *(SOURCE / "audit/rules").glob("*.py")]
#: A word that is no part of a name, a path or a pattern; a sentence has three.
WORD = re.compile(r"(?<![\w.=/-])[a-z]{2,}(?![\w.=(/])")
LANGUAGES = sorted(path.name for path in language.FOLDER.iterdir())


@pytest.fixture(params=LANGUAGES)
def other(request: pytest.FixtureRequest) -> Iterator[str]:
    language.choose(request.param)
    yield request.param
    language.choose("en")


def texts() -> Iterator[str]:
    for entry in ENTRIES.values():
        yield from (entry.title, entry.advice)
    for one in catalogue.remedies():
        yield from (one.summary, one.alters, f"{one.effect}, {' and '.join(one.forms)}", f"for {one.answers}")
    yield from words.PHASE_WORDS.values()
    yield from (bottleneck._BOUND[name].format(share="58 %") for name in CLASSES)
    for verb, said in VERBS.items():
        parser = argparse.ArgumentParser()
        importlib.import_module(f"hotloop.cli.{verb.replace('-', '_')}").add_arguments(parser)
        yield from (said, *(action.help or "" for action in parser._actions))


def sentences(node: ast.AST) -> Iterator[str]:
    """The texts in a piece of source, with 7 in their places: a clause that may be empty is left out."""
    match node:
        case ast.Expr(ast.Constant()) | ast.Call(ast.Attribute(ast.Name("re"))) | ast.Call(ast.Name("_size")):
            return  # no text, or a pattern for what other programs say
        case ast.Constant(str()) | ast.JoinedStr():
            found = (re.sub(r"(?<=[\w)])\0+", "", text).replace("\0", "7") for text in filled(node))
            yield from (one for one in found if len(WORD.findall(one)) >= 3 and not {*"\\|"} & {*one})
        case _:
            for child in ast.iter_child_nodes(node):
                yield from sentences(child)


def filled(node: ast.AST) -> list[str]:
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.JoinedStr(values):
            return ["".join(one) for one in product(*map(filled, values))]
        case ast.FormattedValue(value):
            return filled(value)
        case ast.IfExp(_, body, other):
            return filled(body) + filled(other)
    return ["\0"]


def test_what_rules_say_is_there_sentence_by_sentence(other: str) -> None:
    found = {text: path.name for path in RULES for text in sentences(ast.parse(path.read_text()))}
    assert len(found) > 400
    own = {text: {text, text.lstrip()} for text in found}  # as a clause, or as a sentence behind another
    assert {text: file for text, file in found.items() if {*map(language.said, own[text])} == own[text]} == {}


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


def test_help_speaks_the_language_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--lang", "zh", "--help"])
    assert "总预算" in capsys.readouterr().out
    assert main(["report", "--lang", "xx"]) == 2
    assert "languages: en, zh" in capsys.readouterr().err
    language.choose("en")
