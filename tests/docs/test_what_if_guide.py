"""The guide of what-if and --apply names what there is: every remedy with a live form, by its effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotloop.remedy import catalogue
from hotloop.remedy.remedy import EFFECTS, Effect
from hotloop.whatif.estimate import ACCOUNTED

GUIDE = (Path(__file__).resolve().parents[2] / "docs/guides/what-if.md").read_text()


@pytest.mark.parametrize("effect", EFFECTS)
def test_every_live_remedy_is_listed_by_its_effect(effect: Effect) -> None:
    row = re.search(rf"^\| {effect} \|[^|]*\|([^|]*)\|$", GUIDE, flags=re.M)
    assert row
    listed = set(re.findall(r"`([^`]+)`", row[1]))
    assert listed == {one.id for one in catalogue.remedies() if one.effect == effect and one.live}


def test_commands_name_remedies_that_exist() -> None:
    commands = re.findall(r"^(?:\$ )?hotloop (?:what-if|run) (.*?) -- ", GUIDE, flags=re.M)
    words = [word for command in commands for word in command.split() if not word.startswith("-")]
    for word in set(words) - {"free-data", "fix.diff"}:
        assert re.fullmatch(r"\d+s", word) or catalogue.parse(word).remedy.live


def test_every_accounted_row_is_explained() -> None:
    for name in ACCOUNTED:
        assert f"`{name}`" in GUIDE
