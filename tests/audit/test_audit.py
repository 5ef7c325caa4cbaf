"""The audit as a whole: what it reads, what it leaves out, how it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from audit_examples import ALL, bad
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.running import hotloop

from hotloop.audit.audit import Audit, audit
from hotloop.audit.program import Machine
from hotloop.audit.render import as_github, as_json, as_sarif
from hotloop.report import audit as text

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "benchmarks" / "accuracy" / "cases"

STEP = """import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {line}
"""


def audited(folder: Path, **files: str) -> Audit:
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    return audit([folder], [], Machine(cores=16))


def ids(done: Audit, *, above_info: bool = False) -> set[str]:
    return {f.id for f in done.findings if not above_info or f.severity != "info"}


@pytest.mark.parametrize("case", sorted(CASES.glob("healthy_*.py")), ids=lambda case: case.stem)
def test_healthy_scripts_have_no_finding_above_info(case: Path) -> None:
    assert ids(audit([case], [], Machine(cores=16)), above_info=True) == set()


PLANTED = {
    "cadence_checkpoint_often": "cadence/checkpoint",
    "cadence_figure_each_step": "cadence/images",
    "cadence_images_tensorboard": "cadence/images",
    "cadence_logging_histograms": "cadence/logging",
    "config_accumulation_mismatch": "config/dead-key",
    "config_flag_overridden": "config/dead-key",
    "device_attention_by_hand": "device/attention-not-fused",
    "host_gc_collect_each_step": "host/gc-pauses",
    "input_h5_open_each": "input/opened-per-sample",
    "input_png_folder": "input/single-process",
    "input_respawned_short_epochs": "input/respawned-workers",
    "input_respawned_spawn": "input/respawned-workers",
    "input_scaler_module_loop": "input/per-sample-conversion",
    "input_shallow_prefetch": "input/shallow-prefetch",
}


@pytest.mark.parametrize(("case", "rule"), PLANTED.items())
def test_a_cause_planted_for_the_accuracy_benchmark_shows_in_the_source(case: str, rule: str) -> None:
    assert rule in ids(audit([CASES / f"{case}.py"]))


@pytest.mark.parametrize(
    ("system", "known"),
    [
        ("tcn_state", {"input/per-sample-conversion", "host/sync-in-step"}),
        ("landmarks", {"device/deterministic-on", "host/sync-in-step", "host/loop-over-parameters"}),
        ("bev", {"host/sync-in-step", "host/loop-over-parameters"}),
        ("spikevid", {"trend/misleading-metric"}),
        ("heads", {"transfer/pin-no-effect"}),
    ],
)
def test_the_training_systems_as_found(system: str, known: set[str]) -> None:
    assert ids(audit([ROOT / "workloads" / system])) == known


DEAD = [
    "DATA.TRAIN_CROP_SIZE", "MODEL.VRT_DEPTHS", "MODEL.WINDOW_SIZE", "MODEL.USE_CHECKPOINT_ATTN",
    "MODEL.USE_CHECKPOINT_FFN", "TRAIN.AMP_ENABLED", "TRAIN.AMP_OPT_LEVEL", "TRAIN.COMPILE_MODEL",
    "TRAIN.GRADIENT_ACCUMULATION_STEPS",
]  # fmt: skip


@pytest.mark.parametrize(
    ("system", "plans", "known"),
    [
        ("landmarks", "cpu cpu_cured", ["config/ignored-value: cpu.yaml:4"]),
        ("spikevid", "deblur/vrt_spike_baseline deblur/vrt_spike_cured", DEAD),
    ],
)
def test_what_a_variant_makes_of_its_configuration_is_in_its_own_file(
    system: str, plans: str, known: list[str]
) -> None:
    """The landmarks guide's table (S2-3, S2-11, S2-27); keys of the video guide that nothing reads (X9)."""
    folder = ROOT / "workloads" / system
    said = []
    for plan, other in zip(plans.split(), ("cured.py", "as_found.py"), strict=True):
        files = [path for path in folder.glob("*.py") if path.name != other]
        found = audit(files, [folder / "configs" / f"{plan}.yaml"], Machine(cores=64)).findings
        said.append({f"{f.id}: {f.message.partition(' ')[0].rpartition('/')[2]}" for f in found})
    assert all(any(name in one for one in said[0]) for name in known)
    assert not [one for one in said[1] if one.startswith("config/")]


def test_every_branch_of_the_physics_loss_is_named() -> None:
    """X22: four branches on tensors, one of them on what a function of the file returns."""
    found = audit([ROOT / "workloads" / "tcn_state"]).findings
    (branches,) = (f for f in found if f.id == "host/sync-in-step" and "branches" in f.message)
    source = (ROOT / "workloads/tcn_state/train.py").read_text().splitlines()
    assert branches.where is not None
    lines = [source[number - 1].strip() for number in (branches.where.line, *branches.data["lines"])]
    wanted = ["if below.max() > 0:", "if above.max() > 0:", "if spread < 0.01:", "if (mismatch < 0).any():"]
    assert [line.partition("  #")[0] for line in lines] == wanted


def test_settings_of_the_third_system_that_do_nothing_are_named() -> None:
    """Two keys are read by no code; what another variant reads is left alone."""
    bev = ROOT / "workloads" / "bev"
    config = bev / "configs" / "baseline" / "lss_swin_nuscenes.py"
    found = [f.message for f in audit([bev], [config]).findings if f.id == "config/dead-key"]
    assert [one.partition(" ")[0] for one in found] == ["evaluation.efficient_test", "evaluation.pre_eval"]


def test_aliases_are_seen_through(tmp_path: Path) -> None:
    done = audited(
        tmp_path,
        a=STEP.format(line="release()").replace(
            "import torch", "from torch.cuda import empty_cache as release"
        ),
    )
    assert "memory/empty-cache-in-step" in ids(done)


def test_a_local_function_of_the_same_name_is_not_the_imported_one(tmp_path: Path) -> None:
    source = "def empty_cache():\n    pass\n\n\n" + STEP.format(line="empty_cache()")
    assert "memory/empty-cache-in-step" not in ids(audited(tmp_path, a=source))


def test_a_step_function_called_from_a_loop_in_another_file_is_part_of_the_step(tmp_path: Path) -> None:
    step = (
        "import torch\n\n\nclass Trainer:\n    def learn(self, x):\n        loss = "
        "self.model(x.cuda()).mean()\n"
        "        loss.backward()\n        self.optimizer.step()\n        self.optimizer.zero_grad()\n"
        "        torch.cuda.empty_cache()\n"
    )
    loop = "import torch\n\n\ndef main(trainer, loader):\n    for x in loader:\n        trainer.learn(x)\n"
    assert "memory/empty-cache-in-step" in ids(audited(tmp_path, step=step, loop=loop))
    (tmp_path / "loop.py").unlink()
    assert "memory/empty-cache-in-step" not in ids(audited(tmp_path))


def test_a_function_named_as_one_step_needs_no_loop_in_sight(tmp_path: Path) -> None:
    step = (
        "import torch\n\n\ndef training_step(model, x):\n    model(x.cuda()).mean().backward()\n"
        "    torch.cuda.empty_cache()\n"
    )
    assert "memory/empty-cache-in-step" in ids(audited(tmp_path, step=step))
    assert ids(audited(tmp_path, step=step.replace("training_step", "saliency"))) == set()


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.empty_cache()  # hotloop: ignore[memory/empty-cache-in-step]",
        "torch.cuda.empty_cache()  # hotloop: ignore[empty-cache-in-step, sync-in-step]",
        "torch.cuda.empty_cache()  # hotloop: ignore",
        "# hotloop: ignore[empty-cache-in-step]\n        torch.cuda.empty_cache()",
    ],
)
def test_a_comment_silences_a_rule(tmp_path: Path, line: str) -> None:
    done = audited(tmp_path, a=STEP.format(line=line))
    assert "memory/empty-cache-in-step" not in ids(done)
    assert done.num_ignored == 1


def test_a_comment_for_another_rule_silences_nothing(tmp_path: Path) -> None:
    line = "torch.cuda.empty_cache()  # hotloop: ignore[sync-in-step]"
    assert "memory/empty-cache-in-step" in ids(audited(tmp_path, a=STEP.format(line=line)))


def test_nothing_audited_is_executed(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    source = f"import torch\nopen({str(witness)!r}, 'w').close()\n"
    (tmp_path / "c.py").write_text(source)
    audited(tmp_path, a=source)
    audit([tmp_path / "a.py"], [tmp_path / "c.py"])
    assert not witness.exists()


def test_files_that_cannot_be_read_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"import torch\0\1\2")
    (tmp_path / "mojibake.py").write_bytes(b"import torch  # \xff\xfe\n")
    (tmp_path / "codec.py").write_bytes(b"# -*- coding: klingon -*-\nimport torch\n")
    (tmp_path / "old.py").write_text("import torch\nprint 'python 2'\n")
    (tmp_path / "deep.py").write_text("import torch\nx = " + "(" * 5000 + ")" * 5000 + "\n")
    (tmp_path / "huge.py").write_text("x = 1\n" * 400_000)
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nimport torch  # é\n".encode("latin-1"))
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfimport torch\r\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "folder.py").mkdir()
    done = audited(tmp_path)
    names = {Path(s.file).name for s in done.skipped}
    assert names == {"binary.py", "mojibake.py", "codec.py", "old.py", "deep.py", "huge.py", "link.py"}
    assert done.num_files == 2


def test_a_file_name_that_is_not_text_can_be_shown(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text(
        STEP.format(line="torch.cuda.empty_cache()")
    )
    done = hotloop("audit", "--json", ".", folder=tmp_path)
    assert {finding["file"] for finding in json.loads(done.stdout)["findings"]} == {"\\xff.py"}


def test_expressions_of_thousands_of_terms_are_no_trouble(tmp_path: Path) -> None:
    line = "if " + " + ".join(["loss"] * 900) + " > 1:\n            print(loss)"
    done = audited(tmp_path, a=STEP.format(line=line))
    assert (done.num_files, done.skipped) == (1, [])


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("c.yaml", "loader:\n  # comment\n  num_workers: 24\n", 3),
        ("c.json", '{\n  "loader": {\n    "num_workers": 24\n  }\n}\n', 3),
        ("c.toml", "[loader]\nnum_workers = 24\n", 2),
        ("c.py", "loader = dict(\n    num_workers=24,\n)\n", 2),
    ],
)
def test_a_configured_value_that_a_literal_contradicts(
    tmp_path: Path, name: str, content: str, line: int
) -> None:
    config = tmp_path / name
    config.write_text(content)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(
        "from torch.utils.data import DataLoader\n\n\ndef main(cfg, data):\n"
        "    print(cfg.num_workers)\n    return DataLoader(data, shuffle=True, num_workers=2)\n"
    )
    done = audit([code], [config])
    (finding,) = [f for f in done.findings if f.id == "config/ignored-value"]
    assert f"{name}:{line} says loader.num_workers = 24" in finding.message
    assert finding.severity == "high"


@pytest.mark.parametrize(
    "content",
    [
        "loader:\n  num_workers: 2\n",
        "val:\n  num_workers: 24\n",
        "notes: |\n  num_workers: 24\n",
        "a:\n  num_workers: 8\nb:\n  num_workers: 24\n",
        "loader:\n  pin_memory: false\n",
    ],
)
def test_a_configuration_that_says_nothing_else_is_no_finding(tmp_path: Path, content: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(content)
    (tmp_path / "train.py").write_text(
        "from torch.utils.data import DataLoader\n\n\ndef main(cfg, data):\n"
        "    print(cfg.num_workers, cfg.pin_memory)\n"
        "    return DataLoader(data, shuffle=True, num_workers=2)\n"
    )
    assert ids(audit([tmp_path / "train.py"], [config])) == set()


def test_a_broken_configuration_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{")
    (tmp_path / "c.toml").write_text("= 1")
    done = audit([tmp_path], [tmp_path / "c.json", tmp_path / "c.toml"])
    assert {Path(s.file).name for s in done.skipped} >= {"c.json", "c.toml"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """All bad examples as one tree."""
    folder = tmp_path_factory.mktemp("examples")
    for number, example in enumerate(ALL):
        (folder / f"example_{number}.py").write_text(example.source)
    return audit([folder], [], Machine(cores=16))


def test_sarif_has_what_the_standard_asks_for(everything: Audit) -> None:
    done = everything
    document = json.loads(as_sarif(done))
    (run,) = document["runs"]
    assert document["version"] == "2.1.0"
    assert len(run["results"]) == len(done.findings)
    driver = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert driver[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1


def test_json_has_the_shape_of_the_contract(everything: Audit) -> None:
    document = json.loads(as_json(everything))
    assert document["schema"] == 1
    assert document["findings"]
    for finding in document["findings"]:
        assert {"id", "file", "line", "message", "fix"} <= finding.keys()


def test_text_stays_in_eighty_columns_and_prints_no_control_characters(tmp_path: Path) -> None:
    line = "torch.cuda.empty_cache()  # \x1b[31m " + "x" * 200
    done = audited(tmp_path, a=STEP.format(line=line))
    words = text.render(done)
    assert "\x1b" not in words
    assert max(len(one) for one in words.splitlines() if " | " in one) <= 80


def test_github_annotations_escape_what_would_end_them(tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    lines = as_github(audited(folder, a=STEP.format(line="torch.cuda.empty_cache()"))).splitlines()
    assert lines
    assert all(line.startswith(("::warning file=", "::error file=", "::notice file=")) for line in lines)
    assert all("a%2Cb" in line for line in lines)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_mixture_of_lines_is_audited_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Lines taken out of one source and put into another: whatever still parses is audited."""
    lines = data.draw(st.sampled_from(ALL)).source.splitlines()
    others = data.draw(st.sampled_from(ALL)).source.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines)))
        lines[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.lists(st.sampled_from(others), max_size=2)
        )
    case = tmp_path_factory.mktemp("mixture") / "a.py"
    case.write_text("\n".join(lines))
    done = audit([case])
    for render in (text.render, as_json, as_github, as_sarif):
        render(done)


def test_the_command_line_and_its_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(bad("memory/empty-cache-in-step"))
    plain = hotloop("audit", "train.py", folder=tmp_path)
    assert plain.returncode == 0
    assert "medium  memory/empty-cache-in-step  train.py:14" in plain.stdout
    assert "\x1b" not in plain.stdout
    assert hotloop("audit", "--fail-on", "medium", folder=tmp_path).returncode == 1
    assert hotloop("audit", "--fail-on", "high", folder=tmp_path).returncode == 0
    assert hotloop("audit", "nowhere", folder=tmp_path).returncode == 2
    assert hotloop("audit", "--cores", "none", folder=tmp_path).returncode == 2
    written = hotloop("audit", "--json", "--sarif", "out.sarif", folder=tmp_path)
    assert json.loads(written.stdout)["findings"]
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"]
    unwritable = hotloop("audit", "--sarif", "no/such/folder/out.sarif", folder=tmp_path)
    assert unwritable.returncode == 2
    assert "Traceback" not in unwritable.stderr


def test_an_audit_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(bad("memory/empty-cache-in-step"))
    code = (
        "import sys; from pathlib import Path; from hotloop.audit.audit import audit;"
        f"audit([Path({str(tmp_path)!r})]); print(*{{'torch', 'numpy'}} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code]
    env = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == ""
