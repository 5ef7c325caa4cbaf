"""Arms as patches: what of an arm is raced as it would be written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.remedy.golden import scene_of

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


def patches(folder: Path, *roles: str, **facts: Any) -> Patches:
    (folder / "train.py").write_text(TWO)
    evidence = SimpleNamespace(
        steps=SimpleNamespace(loaders=[SimpleNamespace(id=i, role=role) for i, role in enumerate(roles, 1)])
    )
    seen = Examined(evidence=evidence, findings=(), applied={})  # type: ignore[arg-type]
    found = Patches(seen=seen, command=["python", "train.py"])
    found.__dict__["_scene"] = scene_of(folder, {"loaders": LOADERS, "roles": roles, **facts})
    return found


@pytest.mark.parametrize(
    ("roles", "several"),
    [(("train", "evaluation", "unused"), False), (("train", "train", "evaluation"), True)],
)
def test_loaders_that_train_beside_each_other_are_raced_as_they_would_be_written(
    tmp_path: Path, roles: tuple[str, ...], several: bool
) -> None:
    found = patches(tmp_path, *roles, lead=2, fed={"num-workers": 1}).several
    assert ("num-workers" in found) is several
    assert "threads" not in found and "batch-size" not in found


def test_one_of_two_loaders_is_changed(tmp_path: Path) -> None:
    facts = {"lead": 2, "fed": dict.fromkeys(("num-workers", "prefetch-factor"), 1)}
    arm = tuple(map(catalogue.parse, ("num-workers=4", "prefetch-factor=8")))
    written = patches(tmp_path, "train", "train", "evaluation", **facts).write(arm)
    assert not written.left
    assert [line for line in written.diff.splitlines() if line.startswith("+") and "Loader" in line] == [
        "+labelled = DataLoader(few, shuffle=True, num_workers=4, prefetch_factor=8)"
    ]
