"""Training goes on as it would, whatever the script does and whatever fails in hotloop."""

from __future__ import annotations

import os
from pathlib import Path

from tests.running import Observed, run_observed

HEAD = """
import atexit, os, sys
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4))
def train(batches, n=1000):
    for i, (x,) in zip(range(n), batches):
        model(x).sum().backward(); opt.step(); opt.zero_grad()
def endless():
    while True: yield (torch.randn(4, 4),)
"""


def run(body: str, folder: Path, **env: str) -> Observed:
    folder.mkdir(exist_ok=True)
    return run_observed(HEAD + body, folder=folder, env=env)


def test_steps_end_the_run_between_two_steps(tmp_path: Path) -> None:
    body = """
atexit.register(lambda: print("atexit"))
try:
    while True: train(DataLoader(data, batch_size=16))
finally:
    print("finally")
"""
    done = run(body, tmp_path, HOTLOOP_STEPS="7")
    assert (done.returncode, done.stdout) == (0, "finally\natexit\n")
    assert len(done.of("backward")) == len(done.of("optimizer")) == 12  # 5 of them warm-up
    assert done.notes["exit"][0]["reason"] == "steps"


def test_steps_end_a_loop_without_loader_or_module(tmp_path: Path) -> None:
    body = """
w = torch.zeros(4, requires_grad=True); o = torch.optim.Adam([w])
try:
    for x, in endless(): (w * x).sum().backward(); o.step(); o.zero_grad()
except BaseException as error: print(type(error).__name__, error); raise
"""
    done = run(body, tmp_path, HOTLOOP_STEPS="3")
    assert (done.returncode, done.stdout) == (0, "SystemExit 0\n")
    assert len(done.of("optimizer")) == 8
    assert len(done.of("loss")) == 9 or len(done.of("loss")) == 8


def test_an_exception_ends_the_run_as_it_would(tmp_path: Path) -> None:
    body = """
class Broken(torch.nn.Module):
    def forward(self, x): raise KeyError("theirs")
train(endless(), 2)
try: Broken()(1)
except KeyError: pass
train(endless(), 2)
Broken()(1)
"""
    done = run(body, tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("KeyError: 'theirs'\n")
    assert len(done.of("forward")) == 6
    assert (done.notes["exit"][0]["reason"], done.notes["exit"][0]["exception"]) == ("exception", "KeyError")


def test_training_in_a_thread_is_recorded(tmp_path: Path) -> None:
    body = """
import threading
loader = DataLoader(data, batch_size=16, num_workers=1)
t = threading.Thread(target=train, args=(loader,)); t.start(); t.join()
"""
    done = run(body, tmp_path)
    assert len(done.of("backward")) == len(done.of("optimizer")) == 4
    assert len(done.of("fetch")) == 4  # all but the first, which came before the first backward
    assert done.notes["iterator"][0]["workers"]


def test_threads_that_train_one_after_the_other_are_recorded(tmp_path: Path) -> None:
    body = """
import threading
first = threading.Thread(target=train, args=(endless(), 3))
def later(): first.join(); train(endless(), 4)
second = threading.Thread(target=later)  # both live at first: they are not one ident used again
first.start(); second.start(); second.join()
"""
    done = run(body, tmp_path)
    assert len(done.of("backward")) == len(done.of("optimizer")) == 7
    assert not [note for note in done.notes.get("warning", []) if "thread" in note["text"]]


def test_a_second_thread_that_trains_meanwhile_is_told_once(tmp_path: Path) -> None:
    body = """
import threading
train(endless(), 5)
second = threading.Thread(target=train, args=(endless(), 3)); second.start(); second.join()
train(endless(), 2)
"""
    done = run(body, tmp_path)
    assert len(done.of("backward")) == len(done.of("optimizer")) == 7
    (told,) = [note["text"] for note in done.notes["warning"] if "thread" in note["text"]]
    line = 1 + next(n for n, text in enumerate(HEAD.split("\n")) if "backward()" in text)
    assert f"train.py:{line})" in told
    assert "only the first one was observed" in told


def test_a_prefetch_thread_does_not_take_over(tmp_path: Path) -> None:
    body = """
import queue, threading
q = queue.Queue(2)
def fill():
    for batch in DataLoader(data, batch_size=16): q.put(batch)
    q.put(None)
threading.Thread(target=fill).start()
train(iter(q.get, None))
"""
    done = run(body, tmp_path)
    assert len(done.of("forward")) == len(done.of("backward")) == 4
    assert done.of("fetch") == []


def test_forked_processes_that_train_have_files_of_their_own(tmp_path: Path) -> None:
    body = """
import multiprocessing as mp
context = mp.get_context("fork")
def job(n): train(DataLoader(data, batch_size=16), n)
def other(): torch.nn.Linear(2, 2)(torch.ones(2))
if __name__ == "__main__":
    print(os.getpid())
    jobs = [context.Process(target=job, args=(n,)) for n in (2, 3)] + [context.Process(target=other)]
    [j.start() for j in jobs]; [j.join() for j in jobs]
    train(endless(), 4)
    if os.fork() == 0:
        train(endless(), 1); os._exit(0)
    os.wait(); train(endless(), 1)
"""
    done = run(body, tmp_path)
    parents = {notes["process"][0]["parent_main_pid"] for _, notes in done.processes.values()}
    assert parents == {None, int(done.stdout)}
    backwards = [sum(row.kind == "backward" for row in rows) for rows, _ in done.processes.values()]
    assert sorted(backwards) == [1, 2, 3, 5]  # and no file of the child that only went forward
    ends = [notes.get("exit") is not None for _, notes in done.processes.values()]
    assert sum(ends) == 3  # os._exit leaves none


def test_spawned_loader_workers_belong_to_the_trainer(tmp_path: Path) -> None:
    body = """
import multiprocessing as mp
if __name__ == "__main__":
    mp.set_start_method("spawn")
    train(DataLoader(data, batch_size=16, num_workers=1)); print(os.getpid())
"""
    done = run(body, tmp_path)
    assert done.returncode == 0
    [(rows, notes)] = done.with_role("worker")
    assert notes["process"][0]["parent_main_pid"] == int(done.stdout)
    assert sum(row.kind == "make" for row in rows) == 4
    assert not any(row.kind in ("forward", "fetch") for row in rows)


def test_checkpointing_is_told_and_its_recomputation_is_backward(tmp_path: Path) -> None:
    body = """
from torch.utils.checkpoint import checkpoint
class Net(torch.nn.Module):
    def __init__(self): super().__init__(); self.a = torch.nn.Linear(4, 4)
    def forward(self, x): return checkpoint(self.a, x, use_reentrant=self.reentrant)
for reentrant in (False, True):
    net = Net(); net.reentrant = reentrant
    for _ in range(3): net(torch.randn(2, 4, requires_grad=True)).sum().backward()
"""
    done = run(body, tmp_path)
    assert [len(done.of(kind)) for kind in ("forward", "backward")] == [6, 6]
    assert done.notes["module"][-1]["checkpointing"] is True


def test_the_recorder_without_a_place_to_write_says_so_once(tmp_path: Path) -> None:
    done = run("train(endless(), 3); print('trained')", tmp_path, HOTLOOP_RAW=os.devnull + "/x")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr.count("hotloop:") == 1
