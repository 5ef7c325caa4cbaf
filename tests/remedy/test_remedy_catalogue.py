"""The catalogue: every remedy is whole, findings name only remedies that exist, mistakes are explained."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from hotloop.errors import UsageError
from hotloop.findings import ENTRIES
from hotloop.remedy import catalogue
from hotloop.remedy.remedy import EFFECTS, Remedy
from hotloop.torch_facts import MEANINGS

RULES = Path(__file__).resolve().parents[2] / "src" / "hotloop" / "diagnose" / "rules"


def named_in_rules() -> set[str]:
    """The remedies that rules name."""
    return {
        one.value
        for path in RULES.glob("*/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "remedies"
        for one in ast.walk(node.value)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and "_" not in one.value
    }


@pytest.mark.parametrize("remedy", catalogue.remedies(), ids=lambda remedy: remedy.id)
def test_every_remedy_is_whole(remedy: Remedy) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", remedy.id)
    assert remedy.summary.endswith(".")
    assert remedy.effect in EFFECTS
    assert remedy.effect == "exact" or remedy.alters
    assert set(remedy.answers) <= set(ENTRIES)
    assert set(remedy.config_keys) <= set(MEANINGS)
    assert remedy.words.format(value=3)
    for form in filter(None, (remedy.live, remedy.source)):
        module, _, name = form.partition(":")
        assert hasattr(importlib.import_module(module), name)
    if remedy.parameter is not None and remedy.parameter.default is not None:
        assert catalogue.parse(f"{remedy.id}={remedy.parameter.default}").value == remedy.parameter.default


@pytest.mark.parametrize(
    "remedy", sorted(named_in_rules() | {one for home in ENTRIES.values() for one in home.remedies})
)
def test_rules_and_findings_name_remedies_that_exist(remedy: str) -> None:
    assert catalogue.get(remedy).id == remedy


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("num-worker", "no remedy 'num-worker'", "num-workers"),
        ("num-workers=two", "num_workers is a whole number, at least 0", "num-workers=4"),
        ("prefetch-factor=0", "at least 1", "prefetch-factor=4"),
        ("tf32=1", "takes no value", "write tf32"),
        ("compile=fast", "one of default, reduce-overhead", "compile=default"),
        ("", "no remedy ''", "there are"),
    ],
)
def test_a_mistake_is_explained(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        catalogue.parse(text)
    assert message in error.value.message
    assert hint in str(error.value.hint)


def test_what_cannot_be_applied_live_is_told_by_hand() -> None:
    with pytest.raises(UsageError) as error:
        catalogue.environment([catalogue.parse("bake")])
    assert "cannot be applied to a running script" in error.value.message
    assert "hotloop bake" in str(error.value.hint)


def test_a_remedy_is_applied_once() -> None:
    with pytest.raises(UsageError, match="twice"):
        catalogue.environment([catalogue.parse("num-workers=1"), catalogue.parse("num-workers=2")])
