"""What a run says, and every help, is there in each language; code and JSON stay English."""

from __future__ import annotations

import argparse
import gettext
import importlib
import re
from collections.abc import Iterator

import pytest

from hotloop import language
from hotloop.cli.main import VERBS, _in_language, main
from hotloop.diagnose import bottleneck
from hotloop.findings import ENTRIES
from hotloop.phases import CLASSES
from hotloop.remedy import catalogue
from hotloop.report import words

LANGUAGES = sorted(path.name for path in language.FOLDER.iterdir())


@pytest.fixture(params=LANGUAGES)
def other(request: pytest.FixtureRequest) -> Iterator[str]:
    language.choose(request.param)
    yield request.param
    language.choose("en")


def texts() -> Iterator[str]:
    for entry in ENTRIES.values():
        yield from (entry.title, entry.advice)
    yield from (one.summary for one in catalogue.remedies())
    yield from words.PHASE_WORDS.values()
    yield from (bottleneck._BOUND[name].format(share="58 %") for name in CLASSES)
    for verb, said in VERBS.items():
        parser = argparse.ArgumentParser()
        importlib.import_module(f"hotloop.cli.{verb.replace('-', '_')}").add_arguments(parser)
        yield from (said, *(action.help or "" for action in parser._actions))


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
