"""Every Python process of a command gets the probe when it imports torch, and notices nothing else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.running import INJECT, environment, run_command, run_observed, succeeded

from hotloop.measure.measure import main_job, measure
from hotloop.record.read import open_recording

#: What is looked at here is how an interpreter starts.
cold = partial(run_observed, warm=False)


def test_a_process_without_torch_leaves_nothing_and_loads_nothing(tmp_path: Path) -> None:
    script = """
        import sys, threading
        print(__name__, __file__, sys.argv[1:], "hotloop" in sys.modules, threading.active_count())
        sys.exit(3)
    """
    done = cold(script, "a b", folder=tmp_path)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == f"__main__ {tmp_path / 'train.py'} ['a b'] False 1\n"
    assert done.processes == {}


def test_nothing_happens_without_the_launcher(tmp_path: Path) -> None:
    env = {k: v for k, v in environment(tmp_path).items() if not k.startswith("HOTLOOP_")}
    code = "import sys, torch; print('hotloop' in sys.modules, [type(f).__name__ for f in sys.meta_path][:1])"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "False ['_DistutilsMetaFinder']\n" or done.stdout.startswith("False [")
    assert "_TorchFinder" not in done.stdout


def test_torch_and_the_import_path_look_as_they_do_without_us(tmp_path: Path) -> None:
    script = """
        import sys
        before = list(sys.path)
        import torch, threading
        loader = torch.__spec__.loader
        print(sys.path == before, type(loader).__name__, "exec_module" in vars(loader))
        unwanted = "psutil", "sqlite3", "rich", "hotloop.measure", "hotloop.launch"
        print([name for name in unwanted if name in sys.modules])
        print(threading.active_count(), sys.modules["hotloop"].__name__)
    """
    done = cold(script, folder=tmp_path)
    assert done.stdout == "True SourceFileLoader False\n[]\n1 hotloop\n"
    assert done.notes["process"][0]["role"] == "main"
    start, end = (done.notes["import"][0][name] for name in ("start_ns", "end_ns"))
    assert done.notes["process"][0]["start_ns"] < start < end


def test_who_only_asks_whether_there_is_a_torch_does_not_keep_it_from_being_observed(tmp_path: Path) -> None:
    """As ``datasets``, ``transformers`` and ``accelerate`` do before they import it."""
    script = """
        import importlib.util, sys
        print(importlib.util.find_spec("torch") is not None, "torch" in sys.modules, "hotloop" in sys.modules)
        import torch
        print("hotloop" in sys.modules, [type(f).__name__ for f in sys.meta_path if "Torch" in repr(type(f))])
        print("exec_module" in vars(torch.__spec__.loader))
    """
    done = cold(script, folder=tmp_path)
    assert done.stdout == "True False False\nTrue []\nFalse\n"
    assert done.notes["process"][0]["role"] == "main"


ASKS_ALL = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        for other in sys.meta_path:
            spec = other.find_spec(name, path, target) if other is not self else None
            if spec is not None:
                return spec
"""
ASKS_AGAIN = """
class Finder:
    busy = False
    def find_spec(self, name, path=None, target=None):
        if self.busy or name != "torch":
            return None
        self.busy = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self.busy = False
"""
KEEPS_ONE = """
class Finder:
    spec = None
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            self.spec = self.spec or importlib.machinery.PathFinder.find_spec(name, path)
            return self.spec
"""


@pytest.mark.nightly
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("finder", [ASKS_ALL, ASKS_AGAIN, KEEPS_ONE])
def test_finders_of_the_scripts_own_find_torch(tmp_path: Path, finder: str, place: int) -> None:
    lines = [
        "import importlib.util, importlib.machinery, sys", finder, f"sys.meta_path.insert({place}, Finder())",
        "print([importlib.util.find_spec('torch') is not None for _ in range(3)])", "import torch",
        "print('hotloop' in sys.modules, [one for one in sys.meta_path if 'Torch' in repr(type(one))])",
        "print('exec_module' in vars(torch.__spec__.loader))",
    ]  # fmt: skip
    raw = tmp_path / "raw"
    raw.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment(raw), capture_output=True, text=True
    )
    unasked = finder is KEEPS_ONE and place == 0  # it never asks anybody else: this torch is not observed
    assert done.stdout.splitlines()[::2] == ["[True, True, True]", "False"], done.stderr
    assert unasked or done.stdout.splitlines()[1] == "True []"
    assert not list(raw.rglob("without-torch"))


@pytest.mark.parametrize("text", ["import hl_missing\n", "raise RuntimeError('broken torch')\n", None])
def test_a_torch_that_cannot_be_imported_fails_as_it_would(tmp_path: Path, text: str | None) -> None:
    """A ``torch`` package of the script's own that fails, or none at all."""
    if text is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(text)
    (tmp_path / "train.py").write_text("import torch\n")
    raw = tmp_path / "raw"
    raw.mkdir()
    # -S keeps torch out of reach; sitecustomize is then loaded by hand, as site would.
    prelude = f"import sys; sys.path.insert(0, {str(INJECT)!r}); import sitecustomize\n"
    (tmp_path / "observed.py").write_text(
        prelude + "exec(compile(open('train.py').read(), 'train.py', 'exec'))\n"
    )
    (tmp_path / "plain.py").write_text("exec(compile(open('train.py').read(), 'train.py', 'exec'))\n")
    env = environment(raw)
    outputs = []
    for name in ("observed.py", "plain.py"):
        done = subprocess.run(
            [sys.executable, "-S", name], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        outputs.append(
            [line for line in done.stderr.splitlines() if name not in line and "exec(" not in line]
        )
        assert done.returncode == 1
    assert outputs[0] == outputs[1]


def test_a_package_of_the_scripts_called_hotloop_is_the_scripts(tmp_path: Path) -> None:
    (tmp_path / "hotloop.py").write_text("X = 1\n")
    done = cold("import torch, hotloop; print(hotloop.X)", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_a_broken_installation_lets_the_script_run(tmp_path: Path) -> None:
    script = "import torch; print(torch.ones(2).sum().item())"
    done = cold(script, folder=tmp_path, env={"HOTLOOP_SRC": str(tmp_path / "nowhere")})
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert done.stderr.startswith("hotloop: not observing this process")


def with_own(text: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(text)
    env = environment(folder) | {"PYTHONPATH": os.pathsep.join([str(INJECT), str(folder)])}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)


def test_the_users_sitecustomize_runs_too(tmp_path: Path) -> None:
    code = "import sitecustomize; print(theirs, sitecustomize.__file__)"
    done = with_own("import builtins; builtins.theirs = __file__\n", code, tmp_path)
    expected = str(tmp_path / "sitecustomize.py")
    assert done.stdout == f"{expected} {expected}\n"


def test_an_error_in_the_users_sitecustomize_is_reported_as_site_would(tmp_path: Path) -> None:
    done = with_own("raise ValueError('theirs')\n", "print(1)", tmp_path)
    assert done.stdout == "1\n"
    assert "ValueError: theirs" in done.stderr


def test_evidence_seeds_what_has_no_seed_and_leaves_the_scripts_own(tmp_path: Path) -> None:
    draw = "import numpy, torch\nprint(random.random(), numpy.random.rand(), torch.rand(1).item())"
    asked = {"HOTLOOP_EVIDENCE": "1", "HOTLOOP_SEED": "0"}
    scripts = [f"import random\n{own}\n{draw}" for own in ("", "random.seed(5)")]
    said = [
        run_observed(script, folder=tmp_path / f"{at}", env=asked, warm=False).stdout.split()
        for at, script in enumerate(scripts)
    ]
    assert [said[0][0], said[1][0]] == [repr(random.Random(seed).random()) for seed in (0, 5)]
    assert said[0][1:] == said[1][1:]


def test_torchrun_ranks_and_modules_are_observed_and_stop_together(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        """
import torch, torch.distributed as dist, os
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(100):
        model(torch.randn(2, 4)).sum().backward()
        opt.step(); opt.zero_grad()
        total = torch.ones(8); dist.all_reduce(total)
finally:
    os.write(1, f"stopped at {step}\\n".encode())  # in one piece: two ranks share the pipe
    dist.destroy_process_group()
"""
    )
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "job",
    ]  # fmt: skip
    done = succeeded(run_command(command, folder=tmp_path, env={"HOTLOOP_STEPS": "4"}))
    assert done.stdout.count("stopped at 9\n") == 2
    ranks = [
        (rows, notes) for rows, notes in done.processes.values() if any(r.kind == "backward" for r in rows)
    ]
    assert sorted(notes["process"][0]["rank"] for _, notes in ranks) == [0, 1]
    for rows, notes in ranks:
        assert sum(row.kind == "backward" for row in rows) == 9
        reduces = [row for row in rows if row.kind == "collective"]
        assert len(reduces) >= 9 and reduces[-1].value == 32
        assert notes["exit"][0]["reason"] == "steps"
        assert notes["module"][0]["wrapper"] == "DDP"
        assert notes["module"][0]["class"] == "Linear"


@pytest.mark.nightly
def test_ranks_that_a_script_starts_itself_are_ranks_of_one_training(tmp_path: Path) -> None:
    """As Lightning does: the first one imports torch, then starts the others and joins them."""
    script = """
        import os, subprocess, sys
        import torch
        from torch import distributed

        rank = int(os.environ.get("LOCAL_RANK", 0))
        if not rank:
            env = {**os.environ, "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
            other = subprocess.Popen([sys.executable, "train.py"], env=env)
        distributed.init_process_group("gloo", init_method="file://joining", rank=rank, world_size=2)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model(torch.ones(2, 4)).sum().backward()
            distributed.all_reduce(model.weight.grad)
            optimizer.step()
        distributed.barrier()
        distributed.destroy_process_group()
        if not rank:
            sys.exit(other.wait())
    """.replace("file://joining", f"file://{tmp_path}/joining")
    succeeded(cold(script, folder=tmp_path))
    recording = open_recording(tmp_path)
    assert [process.rank for process in recording.ranks] == [0, 1]
    assert [process.first("process")["world_size"] for process in recording.ranks] == [2, 2]
    measured = [measure(process) for process in recording.ranks]
    assert main_job(recording, measured)[0].num_jobs == 1
