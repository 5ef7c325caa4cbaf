"""``hotloop bake`` from the shell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests import running

from hotloop.feed import Baked

MODULE = """
import numpy as np

class Squares:
    def __init__(self, length=40):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return {"image": np.full((4, 4), index, np.uint8), "label": index * index}

squares = Squares(7)

def needs(argument):
    return Squares(argument)

def stream():
    return iter(range(3))

def unmade():
    open("/no/such/data")
"""


def hotloop(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "things.py").write_text(MODULE)
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "lacking.py").write_text("import no_such_package\n")
    return running.hotloop("bake", *arguments, folder=folder)


@pytest.mark.nightly
def test_a_class_an_object_and_a_file_can_be_named(tmp_path: Path) -> None:
    done = running.succeeded(hotloop(tmp_path, "things:Squares", "a", "--json"))
    said = json.loads(done.stdout)
    assert (said["num_samples"], said["num_bytes"], said["num_parts_kept"]) == (40, 40 * 24, 0)
    assert [column["name"] for column in said["columns"]] == ["image", "label"]
    assert Baked(tmp_path / "a")[6]["label"] == 36
    again = hotloop(tmp_path, str(tmp_path / "things.py") + ":Squares", "a", "--num-workers", "0")
    assert again.returncode == 0, again.stderr
    assert "already" in again.stderr
    assert again.stdout == ""


def test_a_stale_bake_is_one_error_and_overwrite_the_way_out(tmp_path: Path) -> None:
    assert hotloop(tmp_path, "things:Squares", "a").returncode == 0
    stale = hotloop(tmp_path, "things:squares", "a")
    assert stale.returncode == 2
    assert "dataset.length was 40, now 7" in stale.stderr
    assert "--overwrite" in stale.stderr
    assert hotloop(tmp_path, "things:squares", "a", "--overwrite", "--verify").returncode == 0
    assert len(Baked(tmp_path / "a")) == 7


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["things", "out"], 2, "MODULE:DATASET"),
        (["no_such_module:x", "out"], 2, "no module"),
        (["no_such.py:x", "out"], 2, "no such file"),
        (["things:nothing", "out"], 2, "nothing"),
        (["things:needs", "out"], 2, "without arguments"),
        (["things:stream", "out"], 2, "no __len__"),
        (["things:unmade", "out"], 2, "things.py:21)"),
        (["broken:x", "out"], 2, "broken.py, line 1"),
        (["lacking:x", "out"], 2, "'no_such_package'"),
        (["things:squares", "out", "--num-workers", "many"], 2, "many"),
        (["things:MODULE", "out"], 2, "MODULE"),
    ],
)
def test_what_cannot_be_baked_is_one_clear_error(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    done = hotloop(tmp_path, *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()
