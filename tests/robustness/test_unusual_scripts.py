"""Scripts that do by themselves what hotloop hooks into: training goes on, and its steps are seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import whole

#: name -> (script, expected output, backward passes that must be seen at least)
SCRIPTS: dict[str, tuple[str, str, int]] = {
    "replaces DataLoader": (
        """
        class Mine:
            def __init__(self, data, batch_size): self.data, self.n = data, batch_size
            def __iter__(self):
                for at in range(0, len(self.data), self.n):
                    yield self.data[at:at + self.n]
        torch.utils.data.DataLoader = Mine
        import torch.utils.data as d
        epoch(d.DataLoader(data, 8)); print("trained")
        """,
        "trained\n",
        8,
    ),
    "subclasses DataLoader, list and Module": (
        """
        class Rows(list):
            read = 0
            def __getitem__(self, at): Rows.read += 1; return super().__getitem__(at)
        class Net(torch.nn.Linear):
            def named_modules(self, *a, **k): Rows.read += 1; return super().named_modules(*a, **k)
        model.__class__ = Net
        class Mine(DataLoader):
            def __init__(self, data, extra, **kw):
                super().__init__(data, **kw); self.extra = extra
            def __iter__(self):
                for batch in super().__iter__(): yield batch
            def __len__(self): return 3
        loader = Mine(Rows(data), "x", batch_size=8)
        epoch(loader); print(loader.extra, len(loader), type(loader).__name__, Rows.read == len(data))
        """,
        "x 3 Mine True\n",
        8,
    ),
    "patches torch": (
        """
        calls = []
        before = torch.nn.Module.__call__, torch.Tensor.backward, torch.autograd.backward
        def call(self, *a, **k): calls.append("f"); return before[0](self, *a, **k)
        def backward(self, *a, **k): calls.append("b"); return before[1](self, *a, **k)
        torch.nn.Module.__call__ = call
        torch.Tensor.backward = backward
        epoch()
        torch.nn.Module.__call__, torch.Tensor.backward, torch.autograd.backward = before
        epoch(); print(calls.count("f"), calls.count("b"))
        """,
        "8 8\n",
        16,
    ),
    "execs": (
        """
        if len(sys.argv) == 1:
            epoch(); sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        epoch(); print(sys.argv[1])
        """,
        "again\n",
        16,
    ),
    "starts a pool by spawn": (
        """
        import multiprocessing
        def work(n): return float(torch.ones(n).sum())
        if __name__ == "__main__":
            multiprocessing.set_start_method("spawn")
            with multiprocessing.Pool(1) as pool:
                print(pool.map(work, [2, 3]))
            epoch(DataLoader(data, batch_size=8, num_workers=1)); print("trained")
        """,
        "[2.0, 3.0]\ntrained\n",
        8,
    ),
    "catches interrupts and uses alarms": (
        """
        import signal
        got = []
        signal.signal(signal.SIGALRM, lambda *_: got.append(1))
        signal.signal(signal.SIGURG, lambda *_: got.append(2))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not got: epoch()
        os.kill(os.getpid(), signal.SIGURG); epoch()
        print(got)
        """,
        "[1, 2]\n",
        8,
    ),
    "waits for a signal, and reads which came": (
        """
        import signal, threading
        epoch(); signal.signal(signal.SIGUSR1, lambda *_: None)
        read, write = os.pipe(); os.set_blocking(write, False); signal.set_wakeup_fd(write)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start(); signal.pause()
        print(list(os.read(read, 99)) == [signal.SIGUSR1])
        """,
        "True\n",
        8,
    ),
    "ends what takes too long by an exception": (
        """
        import signal
        class Late(Exception): pass
        raised = caught = 0
        ignored = []
        epoch()
        def late(*_): global raised; raised += 1; raise Late
        signal.signal(signal.SIGALRM, late); sys.unraisablehook = ignored.append
        for turn in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + turn / 1e5)
                while raised == turn: epoch()
            except Late: caught += 1
            torch.set_grad_enabled(True)
        print(raised - caught - len(ignored) < 3)
        """,
        "True\n",
        8,
    ),
    "has functions that fail, and a length that draws": (
        """
        import pickle, time, unittest.mock as mock
        class Dear(TensorDataset):
            asked = 0
            def __len__(self): Dear.asked += 1; return 64
        loader = DataLoader(Dear(*data.tensors), batch_size=8, shuffle=True)
        for name in "os.getpid", "os.pread", "os.fstat", "os.stat", "time.thread_time_ns", "sys._getframe":
            with mock.patch(name, side_effect=RuntimeError(name)): epoch(loader)
        call = torch.nn.Module.__call__
        pickle.dumps(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks)
        print(Dear.asked, pickle.loads(pickle.dumps(call)) is call)
        """,
        "26 True\n",
        48,
    ),
    "closes every descriptor": (
        """
        epoch(); os.closerange(3, 256); epoch(); print("trained")
        """,
        "trained\n",
        8,
    ),
    "changes folder and environment": (
        """
        os.makedirs("elsewhere"); os.chdir("elsewhere"); os.environ.clear(); epoch()
        print(os.path.basename(os.getcwd()))
        """,
        "elsewhere\n",
        8,
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_unusual_script_runs_as_it_would(tmp_path: Path, name: str) -> None:
    text, expected, num_backwards = SCRIPTS[name]
    path = whole.script(tmp_path, text)
    done = whole.run([sys.executable, str(path)], folder=tmp_path, warm=True)
    assert done.stdout == expected
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.num_backwards >= num_backwards


def test_an_isolated_interpreter_trains_and_hotloop_says_that_it_saw_nothing(tmp_path: Path) -> None:
    path = whole.script(tmp_path, "epoch(); print('trained')\n")
    done = whole.run([sys.executable, "-I", str(path)], folder=tmp_path, warm=True)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.recording.ranks == ()


@pytest.mark.nightly
def test_a_shell_script_that_runs_torchrun_with_two_ranks(tmp_path: Path) -> None:
    whole.script(
        tmp_path,
        """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
        epoch(); dist.barrier(); dist.destroy_process_group()
        """,
    )
    text = f"""\
        #!/bin/sh
        set -e
        {sys.executable} -m torch.distributed.run --nproc-per-node 2 --master-port 0 --rdzv-backend c10d \\
            --rdzv-endpoint localhost:0 train.py
        exit 6
    """
    (tmp_path / "train.sh").write_text(dedent(text))
    done = whole.run(["sh", "train.sh"], folder=tmp_path, warm=True)
    assert done.returncode == 6, done.stderr
    recording = done.recording
    assert [rank.rank for rank in recording.ranks] == [0, 1]
    assert done.num_backwards == 16


@pytest.mark.nightly
def test_trainings_one_after_the_other_are_not_ranks_of_one(tmp_path: Path) -> None:
    whole.script(tmp_path, "for _ in range(int(sys.argv[1])): epoch()\n")
    command = f"'{sys.executable}' train.py 3; '{sys.executable}' train.py 60"
    done = whole.run(["sh", "-c", command], folder=tmp_path, warm=True)
    report = json.loads((done.folder / "report.json").read_text())
    assert (report["num_trainings"], report["num_steps"], len(report["ranks"])) == (2, 480, 1)
    assert "the longest of 2 trainings" in done.stderr
    assert "rank 0" not in done.stderr
