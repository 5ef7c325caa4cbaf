"""The sampler sees Python, native code and sleep alike, loses no time, and reaches no system call."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.running import Observed, Row, run_observed, succeeded

from hotloop import fast
from hotloop.record.rows import U16_MAX

pytestmark = pytest.mark.skipif(fast.hold is None, reason="samples need the compiled part")


def samples_by_line(observed: Observed) -> dict[int, list[Row]]:
    """Samples of the main script by the line of its innermost user frame."""
    stacks: dict[int, Any] = {note["id"]: note["frames"] for note in observed.notes["stack"]}
    found: dict[int, list[Row]] = {}
    for row in observed.of("sample"):
        frames = stacks.get(row.value)
        if frames:
            found.setdefault(frames[-1][1], []).append(row)
    return found


def line_containing(script: str, text: str) -> int:
    return next(i for i, line in enumerate(script.splitlines(), 1) if text in line)


SECTIONS = """\
import time
import torch

spent = {"py": 0.0, "native": 0.0, "holds": 0.0, "sleep": 0.0, "operator": 0.0}
big, text, square = torch.zeros(400_000), bytes(4_000_000), torch.rand(700, 700)

def section(name, work):
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.1:
        work()
    spent[name] += time.perf_counter() - begin

def python():
    for i in range(1000): pass  # PY

def native():
    torch.sort(big)  # NATIVE

def holding():
    text.count(1)  # HOLDS

def sleeping():
    time.sleep(0.1)  # SLEEP

for _ in range(5):
    section("py", python)
    section("native", native)
    section("holds", holding)
    section("sleep", sleeping)
    section("operator", lambda: square @ square)  # OPERATOR: the next call is on another line
print(*spent.values())
"""


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    # Sections far longer than the time between two samples: a sample stands for the time since the last.
    return run_observed(SECTIONS, folder=tmp_path_factory.mktemp("sections"), env={"HOTLOOP_HZ": "100"})


def test_shares_of_lines_match_exact_timers(sections: Observed) -> None:
    observed = sections
    assert observed.returncode == 0, observed.stderr
    truth = [float(word) for word in observed.stdout.split()]
    lines = samples_by_line(observed)
    seen = [
        sum(row.dur for row in lines.get(line_containing(SECTIONS, mark), []))
        for mark in ("# PY", "# NATIVE", "# HOLDS", "# SLEEP", "# OPERATOR")
    ]
    for got, want in zip(seen, truth, strict=True):
        assert got / sum(seen) == pytest.approx(want / sum(truth), abs=0.1)


def test_what_slept_is_told_from_what_computed(sections: Observed) -> None:
    lines = samples_by_line(sections)
    sleeping = lines[line_containing(SECTIONS, "# SLEEP")]
    python = lines[line_containing(SECTIONS, "# PY")]
    share = [sum(r.obj * r.dur for r in rows) / sum(r.dur for r in rows) for rows in (sleeping, python)]
    assert share[0] < share[1] / 2  # however busy the machine is


def test_samples_lose_no_time(sections: Observed) -> None:
    rows = sections.of("sample")
    assert len(rows) > 20
    for before, after in pairwise(rows):
        assert after.start - after.dur == before.start


def test_a_rate_of_zero_takes_no_samples(tmp_path: Path) -> None:
    observed = run_observed("import torch\nprint('done')", folder=tmp_path, env={"HOTLOOP_HZ": "0"})
    assert observed.stdout == "done\n"
    assert observed.of("sample") == []


INVISIBLE = """
import atexit, ctypes, os, select, signal, socket, subprocess, sys, threading, time

def ours():
    names = [open(f"/proc/self/task/{one}/comm").read() for one in os.listdir("/proc/self/task")]
    return names.count("hotloop\\n")

atexit.register(lambda: print("left", ours()))
import torch

ours_at_first = ours()
read, write = socket.socketpair()
write.setblocking(False)
signal.set_wakeup_fd(write.fileno())
libc = ctypes.CDLL(None, use_errno=True)
begin = time.perf_counter()
slept = [libc.usleep(100_000), libc.poll(None, 0, 100), libc.sleep(1)], ctypes.get_errno()
slept = slept, time.perf_counter() - begin >= 1.2
subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -USR1 {os.getpid()}"])
came = []
signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
signal.pause()
print(ours_at_first, slept, came, read.recv(9) == bytes([signal.SIGUSR1]), threading.active_count())

class Timeout(Exception): pass
def alarm(*_): raise Timeout
signal.set_wakeup_fd(-1)
signal.signal(signal.SIGALRM, alarm)
hits = 0
for number in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        exec(f"def new{number}():\\n while True: pass\\nnew{number}()")  # a stack not seen yet
    except Timeout:
        hits += 1
pid = os.fork()
if pid == 0:
    time.sleep(0.05)
    os._exit(7 + ours())
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(hits, status, ours(), flush=True)
if sys.argv[1:]:
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(0.1); print('exec')"])
"""


@pytest.mark.parametrize("pure", ["0", pytest.param("1", marks=pytest.mark.nightly)])
def test_a_tick_reaches_no_system_call_handler_or_child(tmp_path: Path, pure: str) -> None:
    env = {"HOTLOOP_HZ": "300", "HOTLOOP_PURE": pure}
    ours = 0 if pure == "1" else 1
    args = ["exec"] if pure == "1" else []
    observed = succeeded(run_observed(INVISIBLE, *args, folder=tmp_path, env=env, warm=False))
    told = [f"{ours} (([0, 0, 0], 0), True) [1] True 1", f"300 7 {ours}", "exec" if args else "left 0"]
    assert (observed.stdout.splitlines(), observed.stderr) == (told, "")
    warned = any("no stack samples" in note["text"] for note in observed.notes.get("warning", []))
    assert warned == (observed.of("sample") == []) == (pure == "1")


HANGS = """\
import os, subprocess, threading
import torch

subprocess.Popen(["sh", "-c", f"sleep 1.5; kill -9 {os.getpid()}"])
lock = threading.Lock()
lock.acquire()
lock.acquire()  # HANGS
"""


def test_a_run_that_hangs_is_seen_where_it_does(tmp_path: Path) -> None:
    found = samples_by_line(run_observed(HANGS, folder=tmp_path))[line_containing(HANGS, "# HANGS")]
    assert sum(row.dur for row in found) > 1e9
    assert _share(found) < 0.1


def test_training_in_a_thread_is_sampled_there(tmp_path: Path) -> None:
    script = """\
import os, threading, time
import torch

def train():
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(50):
        if step == 5 and not os.fork():  # as workers start
            os._exit(0)
        net(torch.zeros(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.03)  # IN THREAD

thread = threading.Thread(target=train)
thread.start()
thread.join()  # JOIN
"""
    observed = run_observed(script, folder=tmp_path)
    lines = samples_by_line(observed)
    inside = lines.get(line_containing(script, "# IN THREAD"), [])
    assert len(inside) >= 10
    assert {row.obj for row in inside} == {U16_MAX}  # another thread's CPU time is not known


CROWDED = """\
import subprocess, sys, time, os
import torch

busy = [sys.executable, "-I", "-c", "while True: pass"]
others = [subprocess.Popen(busy) for _ in range(2 * os.cpu_count())]

def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(1000))

compute(1.0)  # computing
time.sleep(1.0)  # sleeping
for other in others:
    other.kill()
    other.wait()
"""


@pytest.mark.alone  # keeps every core busy
def test_waiting_for_a_core_is_no_waiting(tmp_path: Path) -> None:
    observed = run_observed(CROWDED, folder=tmp_path)
    found = samples_by_line(observed)
    sleeping = found[line_containing(CROWDED, "# sleeping")]
    computing = [row for line in range(9, 12) for row in found.get(line, [])]
    assert _share(computing) > 0.6  # on a CPU it was a third of the time
    assert _share(sleeping) < 0.2


def _share(rows: list[Row]) -> float:
    """Share of the samples' weight on a CPU or ready for one."""
    return sum(row.obj / 1000 * row.dur for row in rows) / sum(row.dur for row in rows)


BRANCHES = """\
import time
import torch

def scan(values):
    best = 0
    for i in range(len(values)):
        if values[i] > 3: best = i
    return best  # END

values = [i % 7 for i in range(2000)]
begin = time.process_time()
while time.process_time() - begin < 0.5:
    scan(values)
"""


def test_samples_of_a_loop_whose_branches_end_in_it_are_its_own(tmp_path: Path) -> None:
    """Python 3.11 jumps back to such a loop's head with an instruction that has no line."""
    lines = samples_by_line(run_observed(BRANCHES, folder=tmp_path, env={"HOTLOOP_HZ": "100"}))
    define, end = line_containing(BRANCHES, "def scan"), line_containing(BRANCHES, "# END")
    seen = {line: len(rows) for line, rows in lines.items() if define <= line <= end}
    inside = sum(count for line, count in seen.items() if define + 1 < line < end)
    assert inside > 0.8 * sum(seen.values()) > 0
