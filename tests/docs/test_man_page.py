"""The manual page: every verb and flag is in it, and roff takes it without a warning."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hotloop.cli import main as cli

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "hotloop.1"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_it_is_set_without_a_warning_and_names_every_verb_and_flag() -> None:
    command = ["groff", "-man", "-Tascii", "-P-c", "-ww", "-rLL=200n", str(PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    text = "".join(a for a, b in zip(done.stdout, [*done.stdout[1:], ""], strict=True) if a != "\b" != b)
    for verb in cli.VERBS:
        assert f"hotloop {verb}\n" in text
        _, parser = cli.parser_of([verb])
        assert all(name in text for action in parser._actions for name in action.option_strings), verb
