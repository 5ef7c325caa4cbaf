from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.launch.isolation import isolation_warnings


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python -u -m pkg.train -I",
        "python3.12 -W ignore -X importtime train.py -E",
        "python -c print() -S",
        "python -s -B train.py",
        "python -mpkg.train -I",
        "torchrun --nproc-per-node 2 train.py",
        "env A=1 python train.py",
        "sh train.sh",
    ],
)
def test_an_ordinary_command_gets_no_warning(command: str) -> None:
    assert isolation_warnings(command.split()) == ()


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("python -I train.py", "-I"),
        ("/usr/bin/python3.12 -Es train.py", "-E"),
        ("python -W ignore -S train.py", "-S"),
        ("python -uI -m pkg", "-I"),
        ("torchrun --no-python python -I train.py", "-I"),
        ("env -i python train.py", "env -i"),
        ("sudo python train.py", "sudo"),
    ],
)
def test_what_shuts_hotloop_out_is_named(command: str, flag: str) -> None:
    (warning,) = isolation_warnings(command.split())
    assert "could not look inside" in warning
    assert flag in warning


def test_the_first_line_of_a_console_script_counts(tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text("#!/usr/bin/python3 -Es\n")
    script.chmod(0o755)
    (warning,) = isolation_warnings([str(script)])
    assert str(script) in warning
    script.write_text("#!/usr/bin/env python3\n")
    assert isolation_warnings([str(script)]) == ()
