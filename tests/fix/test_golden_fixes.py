"""Every golden case: the patch makes ``after`` of ``before``, git applies it, and made again it is empty."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from golden import after_run, case_of, names, patch_of, scene_of

from hotloop.findings import Finding, Severity
from hotloop.fix.patch import from_findings, make, with_values
from hotloop.remedy import catalogue

REWRITE = bool(os.environ.get("REWRITE_GOLDEN"))


@pytest.mark.parametrize("name", names())
def test_the_patch_is_the_one_a_person_would_write(name: str, tmp_path: Path) -> None:
    case = case_of(name)
    folder = case.write(tmp_path / "project")
    patch = patch_of(folder, case.facts)
    words = "".join(
        f"{left.remedy}: {Path(left.file).name}:{left.line}: {left.why}\n    {left.write}\n"
        for left in patch.left
    ) + "".join(f"note: {remark}\n" for remark in patch.remarks)
    diff = patch.diff(folder).encode("utf-8", "surrogateescape")
    if diff:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "apply", "-"], cwd=folder, input=diff, check=True)
        shutil.rmtree(folder / ".git")
    if REWRITE:
        case.rewritten(_files(folder), words)
        case = case_of(name)
    assert _files(folder) == case.after
    assert words == case.words
    again = patch_of(folder, after_run(case.facts, patch))
    assert again.diff(folder) == ""


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def found(id: str, remedy: str, severity: Severity, **data: Any) -> Finding:
    return Finding(
        id=id, message="", advice="", evidence=(), severity=severity, remedies=(remedy,), data=data
    )


@pytest.mark.parametrize("severity", ["info", "medium"])
def test_what_is_only_information_never_alters_results(tmp_path: Path, severity: Severity) -> None:
    """Threads that other programs hold up are no reason to write a number of threads into the source."""
    findings = [
        found("host/thread-oversubscription", "threads", severity, suggested=1),
        found("input/slow-sample", "num-workers", severity, suggested=2),
    ]
    (tmp_path / "train.py").write_text("")
    taken, waiting = from_findings(findings, "numeric", scene_of(tmp_path, {}))
    threads = ["threads"] if severity == "medium" else []
    assert [one.remedy.id for one in taken] == [*threads, "num-workers"]
    assert [one.remedy.id for one in waiting] == ([] if threads else ["threads"])


@pytest.mark.parametrize(("severity", "told"), [("info", []), ("low", ["batched-collate"])])
def test_what_is_only_information_and_cannot_be_written_is_not_told(
    tmp_path: Path, severity: Severity, told: list[str]
) -> None:
    (tmp_path / "train.py").write_text("")
    finding = found("input/slow-collate", "batched-collate", severity)
    taken, waiting = from_findings([finding], "exact", scene_of(tmp_path, {}))
    assert [one.remedy.id for one in (*taken, *waiting)] == told


@pytest.mark.parametrize(("fed", "indexed"), [(1, []), (2, ["cache-samples"])])
def test_whether_samples_have_numbers_is_asked_of_the_loader_that_the_finding_speaks_of(
    tmp_path: Path, fed: int, indexed: list[str]
) -> None:
    (tmp_path / "train.py").write_text("a = DataLoader(stream)\nb = DataLoader(pictures)\n")
    finding = found("input/repeated-work", "cache-samples", "high")
    loaders = [
        {"frames": ["train.py: DataLoader(stream"], "settings": {"iterable": True}},
        {"frames": ["train.py: DataLoader(pictures"], "settings": {}},
    ]
    scene = scene_of(tmp_path, {"loaders": loaders, "fed": {"cache-samples": fed}})
    taken, waiting = from_findings([finding], "exact", scene)
    assert [one.remedy.id for one in (*taken, *waiting)] == indexed


def test_a_constant_of_a_file_that_changed_since_is_not_written(tmp_path: Path) -> None:
    """A module of constants is in no stack: the run has no checksum of it."""
    case = case_of("constant_that_others_read")
    case.write(tmp_path)
    settings = tmp_path / "settings.py"
    facts = case.facts
    scene = scene_of(tmp_path, facts)
    del scene.hashes[settings]
    began = settings.stat().st_mtime
    asked = with_values(map(catalogue.parse, facts["apply"]), ())
    assert make(replace(scene, started_unix_s=began + 1), asked).changes
    changed = replace(scene, started_unix_s=began - 1)
    del changed.hashes[settings]
    patch = make(changed, asked)
    assert not patch.changes
    assert patch.left[0].why == "settings.py changed since the run: run again, then fix"


@pytest.mark.parametrize(("configured", "wanted"), [(0, 4), (2, None)])
def test_what_was_configured_is_written_only_where_it_goes_the_way_asked(
    tmp_path: Path, configured: int, wanted: int | None
) -> None:
    (tmp_path / "a.yaml").write_text(f"num_workers: {configured}\n")
    note = {"source": "yaml", "file": "a.yaml", "key": "num_workers", "meaning": "num_workers"}
    scene = scene_of(
        tmp_path, {"config": [{**note, "value": configured}], "settings": {"num_workers": [configured, 1]}}
    )
    finding = Finding(
        id="input/too-few-workers", message="", advice="", evidence=(), severity="high",
        remedies=("num-workers",), data={"num_workers": 4},
    )  # fmt: skip
    taken, _ = from_findings([finding], "exact", scene)
    assert [(one.remedy.id, one.value) for one in taken] == [("num-workers", wanted)]


@pytest.mark.parametrize("name", ["yaml", "literal_keyword", "compile_and_channels_last"])
def test_what_is_written_already_asks_for_nothing(name: str, tmp_path: Path) -> None:
    case = case_of(name)
    patch = patch_of(case.write(tmp_path / "before"), case.facts)
    again = patch_of(case.write(tmp_path / "after", after=True), after_run(case.facts, patch))
    assert {one.write for one in again.left} == {"nothing is left to write"}


@pytest.mark.parametrize("written", ["import torch, gc", "import torch; import gc"])
def test_what_is_imported_beside_others_is_not_imported_again(tmp_path: Path, written: str) -> None:
    case = case_of("gc_freeze")
    facts = case.facts
    text = case.text()
    (tmp_path / "train.py").write_text(text.replace("import torch", written))
    (_, new) = patch_of(tmp_path, facts).files[tmp_path / "train.py"]
    assert b"gc.freeze()" in new
    assert new.count(b"import gc") + new.count(b", gc") == 1
