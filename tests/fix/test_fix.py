"""``hotloop fix`` on real runs: the patch proves itself and removes the finding, or it says why not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from tests.running import hotloop, succeeded

from hotloop.fix import check

TRAIN = """
    import argparse
    import os
    import time

    import torch
    import yaml
    from torch.utils.data import DataLoader, Dataset


    class Slow(Dataset):
        def __len__(self):
            return 48

        def __getitem__(self, i):
            time.sleep(0.02)
            return torch.full((4,), float(i)), i % 2


    def make_loader(dataset, cfg):
        return DataLoader(
            dataset,
            batch_size=cfg["data"]["batch_size"],
            num_workers=0,  # to be tuned
            shuffle=True,  # every epoch anew
        )


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--out", default="out")
        args = parser.parse_args()
        os.makedirs(args.out, exist_ok=True)
        if os.environ.get("FAIL"):
            raise SystemExit("no data here")
        if os.environ.get("HANG"):
            time.sleep(600)
        with open("config.yaml") as stream:
            cfg = yaml.safe_load(stream)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = make_loader(Slow(), cfg)
        for epoch in range(2):
            for x, y in loader:
                loss = torch.nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


    if __name__ == "__main__":
        main()
"""
CONFIG = "# a run\ndata:\n  batch_size: 4   # a step\n  num_workers: 2  # of this machine\n"


def words_of(done: subprocess.CompletedProcess[str]) -> str:
    """What was said, without its line ends."""
    return " ".join(done.stderr.split())


def observed(project: Path, run: Path, *arguments: str, script: str = "") -> dict[str, object]:
    if script:
        (project / "train.py").write_text(script)
    succeeded(hotloop("run", "--out", run, "--", sys.executable, "train.py", *arguments, folder=project))
    report: dict[str, object] = json.loads((run / "report.json").read_text())
    return report


def tree(folder: Path) -> dict[str, bytes]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A project in git and the run of it."""
    folder = tmp_path_factory.mktemp("a project")
    (folder / "train.py").write_text(dedent(TRAIN).lstrip())
    (folder / "config.yaml").write_text(CONFIG)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "as found")
    run = tmp_path_factory.mktemp("runs") / "run"
    observed(folder, run)
    return folder, run


@pytest.fixture
def project(recorded: tuple[Path, Path]) -> tuple[Path, Path]:
    """The same, as it was committed."""
    folder, run = recorded
    git(folder, "reset", "-q", "--hard")
    shutil.rmtree(folder / "out", ignore_errors=True)
    return folder, run


def git(folder: Path, *words: str, given: str | None = None) -> None:
    subprocess.run(["git", *words], cwd=folder, input=given, text=True, check=True, capture_output=True)


def test_the_patch_proves_itself_applies_and_removes_the_finding(
    project: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, run = project
    before = tree(folder)
    shutil.copytree(run, tmp_path / "typed")
    told = (run / "run.json").read_text().replace(sys.executable, "python")
    (tmp_path / "typed" / "run.json").write_text(told)
    (tmp_path / "python").symlink_to("/bin/false")  # of another environment, and first on PATH
    other = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = succeeded(hotloop("fix", "--trust", tmp_path / "typed", folder=folder, env=other, warm=False))
    assert "checked: the patched copy runs to its first update with num_workers=2" in words_of(done)
    assert tree(folder) == before
    git(folder, "apply", given=done.stdout)
    assert '    num_workers=cfg["data"]["num_workers"],  # to be tuned\n' in (folder / "train.py").read_text()
    assert (folder / "config.yaml").read_text() == CONFIG
    report = observed(folder, tmp_path / "again")
    ids = [finding["id"] for finding in report["findings"]]  # type: ignore[attr-defined]
    assert "config/ignored-value" not in ids and "input/single-process" not in ids


def test_several_remedies_become_one_patch_that_is_proven_up_to_an_update(project: tuple[Path, Path]) -> None:
    folder, run = project
    words = [
        "--apply", "num-workers=1", "--apply", "prefetch-factor=3", "--apply", "cudnn-benchmark", "--json",
    ]  # fmt: skip
    done = succeeded(hotloop("fix", *words, run, folder=folder))
    answer = json.loads(done.stdout)
    assert answer["schema"] == 1 and answer["check"]["passed"] is True
    assert "num_workers=1, prefetch_factor=3, cudnn_benchmark=True" in answer["check"]["words"]
    git(folder, "apply", given=answer["patch"])
    assert "num_workers: 1  # of this machine" in (folder / "config.yaml").read_text()
    text = (folder / "train.py").read_text()
    assert '        num_workers=cfg["data"]["num_workers"],  # to be tuned\n' in text
    assert "        shuffle=True,  # every epoch anew\n        prefetch_factor=3,\n    )\n" in text
    assert "\ntorch.backends.cudnn.benchmark = True\n" in text


def test_write_changes_the_files_and_refuses_what_changed_since(project: tuple[Path, Path]) -> None:
    folder, run = project
    succeeded(hotloop("fix", "--no-check", "--write", "--apply", "pin-memory", run, folder=folder))
    assert "        pin_memory=True,\n" in (folder / "train.py").read_text()
    written = tree(folder)
    again = hotloop("fix", "--no-check", "--write", "--apply", "pin-memory", run, folder=folder)
    assert again.stdout == "" and "train.py changed since the run" in words_of(again)
    unasked = hotloop("fix", "--no-check", run, folder=folder)
    assert (unasked.returncode, unasked.stdout) == (1, ""), words_of(unasked)
    assert "\n    give the DataLoader num_workers=2\n" in unasked.stderr
    assert tree(folder) == written


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anything")
def test_a_file_that_cannot_be_written_leaves_everything_as_it_was(project: tuple[Path, Path]) -> None:
    folder, run = project
    before = tree(folder)
    (folder / "train.py").chmod(0o444)
    done = hotloop("fix", "--no-check", "--write", "--apply", "num-workers=1", run, folder=folder)
    assert done.returncode == 2 and "train.py cannot be written" in words_of(done)
    assert tree(folder) == before


def test_a_copy_that_fails_is_said_and_nothing_is_written(project: tuple[Path, Path]) -> None:
    folder, run = project
    before = tree(folder)
    done = hotloop("fix", "--write", run, folder=folder, env={"FAIL": "1"})
    assert done.returncode == 1 and "ended with exit code 1: no data here" in words_of(done)
    assert tree(folder) == before


def test_a_copy_that_hangs_is_ended(project: tuple[Path, Path]) -> None:
    folder, run = project
    done = hotloop("fix", "--timeout", "2", run, folder=folder, env={"HANG": "1"})
    assert done.returncode == 0
    assert "not checked: the patched copy was not done after 2.00 s" in words_of(done)
    assert done.stdout.startswith("diff --git")


@pytest.mark.nightly
def test_a_script_that_goes_to_its_folder_first(project: tuple[Path, Path], tmp_path: Path) -> None:
    folder, _ = project
    inner = tmp_path / "home" / "inner"
    inner.mkdir(parents=True)
    (inner / "config.yaml").write_text(CONFIG)
    script = inner / "train.py"
    script.write_text(f"#!{sys.executable}\n" + (folder / "train.py").read_text())
    script.chmod(0o755)
    (inner / "go.sh").write_text('cd "$(dirname "$0")"\nexec ./train.py\n')
    command = ["--", "sh", "inner/go.sh"]
    assert hotloop("run", "--out", tmp_path / "run", *command, folder=tmp_path / "home").returncode == 0
    done = succeeded(hotloop("fix", tmp_path / "run", folder=tmp_path / "home"))
    assert "checked: the patched copy runs to its first update with num_workers=2" in words_of(done)
    git(inner, "apply", given=done.stdout)
    assert 'num_workers=cfg["data"]["num_workers"]' in (inner / "train.py").read_text()


def test_of_the_loaders_that_a_factory_built_the_training_one_is_changed(
    project: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, _ = project
    text = (folder / "train.py").read_text()
    text = text.replace("def make_loader(dataset, cfg):", "def make_loader(dataset, cfg, workers):")
    text = text.replace("num_workers=0,  # to be tuned", "num_workers=workers,")
    assert "    loader = make_loader(Slow(), cfg)\n" in text
    text = text.replace(
        "    loader = make_loader(Slow(), cfg)\n",
        "    held_out = make_loader(Slow(), cfg, 0)\n    loader = make_loader(Slow(), cfg, 0)\n"
        "    with torch.no_grad():\n        next(iter(held_out))\n",
    )
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "train.py").write_text(text)
    (inner / "config.yaml").write_text("data:\n  batch_size: 4\n")
    observed(inner, tmp_path / "run")
    done = succeeded(hotloop("fix", "--apply", "num-workers=2", tmp_path / "run", folder=inner))
    assert "checked: the patched copy runs to its first update with num_workers=2" in words_of(done)
    git(inner, "apply", given=done.stdout)
    assert "held_out = make_loader(Slow(), cfg, 0)\n    loader = make_loader(Slow(), cfg, 2)\n" in (
        (inner / "train.py").read_text()
    )


def test_what_a_run_writes_elsewhere_is_left_alone(project: tuple[Path, Path], tmp_path: Path) -> None:
    folder, _ = project
    outside = tmp_path / "outside"
    observed(folder, tmp_path / "run", "--out", str(outside))
    outside.rmdir()
    done = hotloop("fix", tmp_path / "run", folder=folder)
    assert done.returncode == 0
    assert "checked: the patched copy runs to its first update with num_workers=2" in words_of(done)
    assert not outside.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--apply", "num-worker=4"], "did you mean num-workers"),
        (["--apply", "num-workers=many"], "num_workers is a whole number"),
        (["--apply", "cache-samples=lots"], "cache-samples=lots: memory is a size: 4GiB"),
        (["--timeout", "nan"], "'nan' is no duration"),
        (["--apply", "no-workers", "--apply", "num-workers=4"], "exclude each other"),
        (["nowhere.py"], "nowhere.py does not exist"),
    ],
)
def test_mistakes_are_told_in_words(project: tuple[Path, Path], words: list[str], said: str) -> None:
    folder, run = project
    done = hotloop(
        "fix", *words[:-1], *([run, words[-1]] if len(words) == 1 else [words[-1], run]), folder=folder
    )
    assert done.returncode == 2 and said in words_of(done) and "Traceback" not in words_of(done)


def test_only_the_paths_given_are_changed(project: tuple[Path, Path]) -> None:
    folder, run = project
    done = hotloop("fix", "--no-check", "--apply", "num-workers=1", run, "config.yaml", folder=folder)
    assert done.returncode == 1 and done.stdout == ""
    assert "num-workers: not written. train.py: it lies outside the paths given" in words_of(done)


def test_a_cache_in_memory_is_no_file_that_a_trial_must_not_write(project: tuple[Path, Path]) -> None:
    folder, run = project
    done = succeeded(hotloop("fix", "--apply", "cache-samples", run, folder=folder))
    assert "checked: the patched copy runs to its first update" in words_of(done)
    assert "+    return DataLoader(\n" not in done.stdout and "cached(dataset)" in done.stdout


PARTS = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset


    class Scenes(Dataset):
        def __init__(self):
            self.frames = torch.randn(256, 3, 32)

        def __len__(self):
            return 256

        def __getitem__(self, i):
            return {
                "image": self.frames[i],
                "depth": self.frames[i].clone(),
                "label": i % 4,
            }


    def fit(model, optimizer, loader, device):
        for step, batch in enumerate(loader):
            logits = model(batch["image"].to(device).flatten(1))
            loss = (logits.sum(1) - batch["label"].to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        device = torch.device("meta")
        model = nn.Linear(96, 4).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(Scenes(), batch_size=8)
        for epoch in range(2):
            fit(model, optimizer, loader, device)
"""


def test_what_a_loop_reads_of_its_batches_and_where_it_moves_them_is_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(PARTS).lstrip())
    meta = {"HOTLOOP_ACCELERATOR": "meta"}
    succeeded(hotloop("run", "--out", "run", "--", sys.executable, "train.py", folder=tmp_path, env=meta))
    asked = ("--apply", "device-prefetch", "--apply", "drop-unused-fields")
    done = succeeded(hotloop("fix", "run", *asked, folder=tmp_path, env=meta))
    changed = [line for line in done.stdout.splitlines() if line[:1] in "+-" and line[1:2] not in "+-"]
    assert changed == [
        "+from hotloop.feed import DevicePrefetcher",
        '-            "depth": self.frames[i].clone(),',
        "-    for step, batch in enumerate(loader):",
        "+    for step, batch in enumerate(DevicePrefetcher(loader, device)):",
    ]
    assert "checked: the patched copy runs to its first update" in words_of(done)


EVALUATED = """
import time

import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(8):
    for step in range(10):
        loss = model(torch.ones(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(0.01)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        model(torch.ones(8, 4))
        time.sleep(0.1)
        model(torch.ones(8, 4))
    model.train()
"""


def test_what_could_not_be_written_is_not_offered(tmp_path: Path) -> None:
    observed(tmp_path, tmp_path / "run", script=EVALUATED)
    done = hotloop("fix", tmp_path / "run", folder=tmp_path)
    words = words_of(done)
    assert "less-frequent-evaluation: not written. train.py" in words, done.stderr
    assert "no `if ... % N == 0` stands around it" in words
    assert "not asked for" not in words and "no patch: write it by hand" in words
    assert "host/python-in-step: no patch is known" in words and "hotloop brief " in words


SHORT = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((4,), float(i))

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
loader = DataLoader(Slow(), batch_size=4, shuffle=True)
for epoch in range(80):
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.nightly
def test_workers_that_short_epochs_start_anew_are_not_written(tmp_path: Path) -> None:
    observed(tmp_path, tmp_path / "run", script=SHORT)
    done = hotloop("fix", "--json", tmp_path / "run", folder=tmp_path)
    found = json.loads(done.stdout)
    assert found["patch"] == "" and any("num-workers" in one for one in found["not_asked_for"]), done.stderr
    assert "--allow semantic" in found["predicted"][0]
    done = hotloop("fix", "--no-check", "--allow", "semantic", tmp_path / "run", folder=tmp_path)
    assert "persistent_workers=True" in done.stdout


FAILS_PATCHED = """
import torch
from torch import nn

patched = "fused=" + "True" in open(__file__).read()


def fails(grad):
    raise ValueError("something was changed in place")


block, last = nn.Linear(8, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*block.parameters(), *last.parameters()], lr=0.1)
for step in range(12):
    loss = last(block(torch.randn(4, 8))).square().mean()
    if patched:
        loss.register_hook(fails)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("cached", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_copy_that_fails_in_its_first_backward_is_not_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    if cached:  # a folder of its own for what torch compiles: torch sets it as well, for its children
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path.parent / f"{tmp_path.name}-inductor"))
    observed(tmp_path, tmp_path / "run", script=FAILS_PATCHED)
    done = hotloop("fix", "--apply", "fused-optimizer", tmp_path / "run", folder=tmp_path)
    words = words_of(done)
    assert "checked" not in words
    assert done.returncode == 1 and "exit code 1" in words, done.stderr
    assert not done.stdout and "git apply" not in words, "what failed its check is nothing to apply"


REWRITTEN = """
import os
import torch
from torch import nn

torch.manual_seed(0)
block, last = nn.Linear(8, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*block.parameters(), *last.parameters()], lr=0.1)
other = bool(os.environ.get("OTHER")) and "scaled" + "_dot" in open(__file__).read()

def attend(q, k, v):
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
    return weights @ v

for step in range(48):
    x = block(torch.randn(2, 2, 4, 8))
    loss = last(attend(x, x, x)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.param_groups[0]["lr"] = 5.0 if other and step > 3 else 0.1
    optimizer.step()
"""


@pytest.mark.parametrize("other", ["", pytest.param("1", marks=pytest.mark.nightly)])
def test_rewritten_code_is_trained_beside_what_it_was(tmp_path: Path, other: str) -> None:
    observed(tmp_path, tmp_path / "run", script=REWRITTEN)
    words = ["--apply", "fused-attention", "--write", tmp_path / "run"]
    done = hotloop("fix", *words, folder=tmp_path, env={"OTHER": other})
    text = (tmp_path / "train.py").read_text()
    if other:
        assert done.returncode == 1 and text == REWRITTEN, done.stderr
        assert "with the patch losses are others" in words_of(done)
    else:
        assert done.returncode == 0 and "scaled_dot_product_attention" in text, done.stderr
        assert "losses with the patch and without: " in words_of(done)


def test_a_check_by_another_python_than_the_runs_says_so() -> None:
    def ran(executable: str) -> Any:
        return SimpleNamespace(first=lambda kind: {"executable": executable})

    def words(*ranks: str, without: tuple[str, ...] = ()) -> str:
        seen: Any = SimpleNamespace(ranks=[ran(one) for one in ranks], without_torch=without)
        return check.other_python(ran("/x/.venv/bin/python"), seen)

    assert words("/x/.venv/bin/python3") == words() == ""
    assert words("/usr/bin/python3").startswith("/usr/bin/python3 ran it, and /x/.venv/bin/python the run")
    assert words(without=("/usr/bin/python3",)) == words("/usr/bin/python3")
