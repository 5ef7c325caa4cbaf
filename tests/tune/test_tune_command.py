"""``hotloop tune`` on real launches: the user's tree stays as it is, and what does not work is told."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.running import SRC, hotloop, succeeded
from tests.waiting import waiting

from hotloop.diagnose.repeating import generators
from hotloop.flow.examine import examine, read
from hotloop.flow.observe import new_run_folder, observe
from hotloop.launch.guard import Guard, free_memory
from hotloop.launch.throwaway import Refused, prepare

SCRIPT = f"""{waiting(64, 0.03, draws=True)}
    with open("train.log", "a") as log:
        log.write("a step\\n")
torch.save(model.state_dict(), "model.pt")
"""


DRAWS = """
import numpy, torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __init__(self):
        self.own = numpy.random.default_rng(0)
    def __len__(self):
        return 24
    def __getitem__(self, i):
        return torch.full((4,), float({sample}))

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in DataLoader(Samples(), batch_size=2, shuffle=True, num_workers={num_workers}):
    optimizer.zero_grad()
    model(torch.nn.functional.dropout(x)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "train.log").write_text("mine\n")
    monkeypatch.chdir(folder)
    try:
        prepare().close()
    except Refused as refused:
        pytest.skip(f"writes cannot be kept apart here: {refused.message}")
    return folder


def tune(project: Path, *words: str, rounds: int = 1) -> subprocess.CompletedProcess[str]:
    """A race of three arms in so many rounds: what a search is worth is tested without launches."""
    first = f"from hotloop.tune import search; search._MOST_ARMS, search._MOST_ROUNDS = 3, {rounds}"
    return hotloop("tune", *words, folder=project, timeout=400, first=first)


@pytest.mark.alone  # what it measures is time
def test_workers_are_found_proven_and_written_as_a_patch(project: Path) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    done = tune(project, "--out", "../tuned", "--budget", "5m", "--json", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    best = document["best"]
    assert best["settings"]["num_workers"] >= 1
    assert best["gain"]["ci95"][0] > 1
    assert best["samples_per_s"] > document["baseline"]["samples_per_s"]
    assert {path.name: path.read_bytes() for path in project.iterdir()} == before
    patch = project.parent / "tuned" / "tune.patch"
    added = [line for line in patch.read_text().splitlines() if line.startswith("+")]
    assert any(f"num_workers={best['settings']['num_workers']}" in line for line in added)
    subprocess.run(["git", "apply", "--check", str(patch)], cwd=project, check=True)

    # All of it is in the journal: asked again, nothing is launched.
    trials = (project.parent / "tuned" / "trials.jsonl").read_bytes()
    again = succeeded(tune(project, "--out", "../tuned", "--budget", "5m", "--", sys.executable, "train.py"))
    assert (project.parent / "tuned" / "trials.jsonl").read_bytes() == trials
    assert f"best: {' + '.join(best['remedies'])}" in again.stdout
    assert max(map(len, again.stdout.splitlines())) <= 200


@pytest.mark.parametrize(
    ("sample", "num_workers", "drawn"), [("self.own.random()", 2, True), ("i", 0, False)]
)
def test_samples_that_draw_are_noticed(tmp_path: Path, sample: str, num_workers: int, drawn: bool) -> None:
    (tmp_path / "draws.py").write_text(DRAWS.format(sample=sample, num_workers=num_workers))
    run = new_run_folder(tmp_path / "run", ["draws"])
    observe([sys.executable, str(tmp_path / "draws.py")], run, env={"HOTLOOP_DRAWS": "1"})
    evidence = examine(read(run)).evidence
    assert evidence is not None and generators(evidence) == (
        ("the dataset's own generator",) if drawn else ()
    )


def test_a_script_that_fails_is_told_with_its_own_words_and_leaves_its_output(project: Path) -> None:
    (project / "train.py").write_text(
        "import torch\nopen('half.txt', 'w').write('x')\nraise ValueError('no data')\n"
    )
    done = tune(project, "--out", "../tuned", "--", sys.executable, "train.py")
    assert done.returncode == 1
    assert "error: the unmodified run gives nothing to tune: exit code 1: ValueError: no data" in done.stderr
    assert "Traceback" not in done.stderr
    assert "10 min 0 s: the unmodified run for 1 min 30 s, or until" in " ".join(done.stderr.split())
    assert "ValueError" in (project.parent / "tuned" / "trials" / "000" / "output.log").read_text()
    assert not (project / "half.txt").exists()
    assert not (project.parent / "tuned" / "tune.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--", "no-such-program"], "command not found: no-such-program"),
        (["--budget", "soon", "--", "true"], "'soon' is no duration"),
        (["--memory", "lots", "--", "true"], "lots"),
        ([], "no command to run"),
    ],
)
def test_bad_input_leaves_nothing_behind(project: Path, words: list[str], told: str) -> None:
    done = tune(project, *(["--out", "tuned", *words] if words else []))
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in project.iterdir()) == ["train.log", "train.py"]


def test_a_run_that_hangs_is_ended_with_all_its_processes() -> None:
    run = begun("import subprocess; subprocess.Popen(['sleep', '600'])")
    guard = Guard(timeout_s=0.0)
    while not guard.why:
        guard.look(run.pid)
    assert run.wait(60) == -9 and run.stdin is not None and run.stdout is not None
    assert guard.why.startswith("was not done after")
    assert run.stdout.read() == ""  # it held this end too: only when both are gone is there an end
    run.communicate()


def test_a_slow_start_is_not_interrupted_before_it_shows_steps() -> None:
    run, guard = begun(), Guard(timeout_s=600.0, stop_s=0.0)
    guard.look(run.pid)
    assert not guard.stopped and run.poll() is None
    guard.steps = 1
    while not guard.stopped:
        guard.look(run.pid)
    assert run.wait(60) in (-2, 1) and not guard.why
    run.communicate()


def test_a_run_over_its_memory_is_ended_with_the_reason() -> None:
    run, guard = begun(), Guard(timeout_s=600.0, most_bytes=1e6)
    while not guard.why:
        guard.look(run.pid)
    assert run.wait(60) == -9
    assert "the limit is 977 KiB" in guard.why
    run.communicate()
    free, total = free_memory()
    assert 0 < free < total


def begun(first: str = "") -> subprocess.Popen[str]:
    """A process that has begun and does not end."""
    code = f"{first}\nimport sys; print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    run = subprocess.Popen([sys.executable, "-S", "-c", code], **pipes, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    return run


EVALUATES = f"""
step = 0

def evaluate(model):
    model.eval()
    with torch.no_grad():
        for _ in range(4):
            time.sleep(0.03)
            model(torch.zeros(4, 8))
    model.train()
{waiting(72, 0.015)}
    step += 1
    if step % 4 == 0:
        evaluate(model)
"""


@pytest.mark.alone
@pytest.mark.nightly
def test_a_patched_remedy_and_a_live_one_are_found_told_and_resumed(project: Path) -> None:
    (project / "train.py").write_text(EVALUATES)
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    command = (sys.executable, "train.py")
    words = ("--out", "../tuned", "--budget", "4m", "--allow", "semantic", "--json", "--", *command)
    done = succeeded(tune(project, *words, rounds=2))
    document = json.loads(done.stdout)
    remedies = {word.partition("=")[0] for word in document["best"]["remedies"]}
    assert remedies >= {"less-frequent-evaluation", "num-workers"}, document["best"]
    assert document["best"]["effect"] == "semantic"
    assert {path.name: path.read_bytes() for path in project.iterdir()} == before
    best = project.parent / "tuned" / "best.diff"
    assert document["in_force"] == "best.diff"
    assert "+    if step % " in best.read_text()
    assert "num_workers" not in best.read_text()
    raced = [one for one in document["trials"] if set(one["remedies"]) == set(document["best"]["remedies"])]
    for trial in raced:
        text = project.parent / "tuned" / trial["folder"] / "patched" / "patch.diff"
        assert text.read_bytes() == best.read_bytes()
    assert f"--patch {best.resolve()} --apply num-workers" in document["command"]

    again = tune(project, *words, rounds=2)
    assert json.loads(again.stdout) == document

    printed = document["command"].replace("hotloop run", f"{sys.executable} -m hotloop run --out ../run")
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    ran = subprocess.run(
        shlex.split(printed), cwd=project, env=env, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "patch in force: train.py" in ran.stderr
    assert "applied num-workers: in effect" in ran.stderr
