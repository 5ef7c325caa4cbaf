"""Arms as patches: what of an arm is raced as it would be written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fix.golden import scene_of

from hotloop.findings import Finding, Place
from hotloop.remedy import catalogue
from hotloop.tune.patching import Patches
from hotloop.tune.trial import Examined

TWO = """
labelled = DataLoader(few, shuffle=True)
unlabelled = DataLoader(many, shuffle=True)
held_out = DataLoader(some)
"""
LOADERS: list[dict[str, Any]] = [
    {"frames": [f"train.py: DataLoader({name}"], "settings": {}} for name in ("few", "many", "some")
]


def patches(folder: Path, *roles: str, text: str = TWO, **facts: Any) -> Patches:
    (folder / "train.py").write_text(text)
    evidence = SimpleNamespace(
        steps=SimpleNamespace(loaders=[SimpleNamespace(id=i, role=role) for i, role in enumerate(roles, 1)])
    )
    seen = Examined(evidence=evidence, findings=(), applied={})  # type: ignore[arg-type]
    found = Patches(seen=seen, command=["python", "train.py"])
    found.__dict__["_scene"] = scene_of(folder, {"loaders": LOADERS, "roles": roles, **facts})
    return found


def test_all_loaders_that_train_are_changed(tmp_path: Path) -> None:
    facts = {"lead": 2, "fed": dict.fromkeys(("num-workers", "prefetch-factor"), 1)}
    arm = tuple(map(catalogue.parse, ("num-workers=4", "prefetch-factor=8")))
    written = patches(tmp_path, "train", "train", "evaluation", **facts).write(arm)
    assert not written.left
    assert [line for line in written.diff.splitlines() if line.startswith("+") and "Loader" in line] == [
        "+labelled = DataLoader(few, shuffle=True, num_workers=4, prefetch_factor=8)",
        "+unlabelled = DataLoader(many, shuffle=True, num_workers=4, prefetch_factor=8)",
    ]


ROWS = """
import torch
def batches(docs):
    return torch.stack([torch.tensor(tokenize(each)) for each in docs])
"""


@pytest.mark.parametrize(("under", "made"), [("memoize=train.py:tokenize", True), ("defer-item", False)])
def test_a_place_that_only_a_later_run_names_is_taken_where_lines_are_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, under: str, made: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    found = patches(tmp_path, text=f"{ROWS}{TWO}")
    arm = (catalogue.parse("batched-convert"),)
    assert "no finding names rows" in found.cannot(arm)
    place = Place(file=str(tmp_path / "train.py"), line=4, function="batches")
    later = Finding(
        id="input/slow-sample", message="", advice="", evidence=(), remedies=("batched-convert",), where=place
    )
    found.hear([later], (catalogue.parse(under),))
    assert (found.cannot(arm) == "") is made
