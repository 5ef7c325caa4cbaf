from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from tests.running import SRC

from hotloop.errors import UsageError
from hotloop.launch.command import Outcome, observed_environment, run_command


def run(*command: str, tmp_path: Path, **options: object) -> Outcome:
    return run_command(command, raw_dir=tmp_path / "raw", src_dir=SRC, **options)  # type: ignore[arg-type]


def launcher(tmp_path: Path, child: str, *, before: str = "") -> subprocess.Popen[str]:
    """A process that runs ``child`` (Python source) through run_command and prints the outcome as JSON."""
    (tmp_path / "child.py").write_text(dedent(child))
    code = f"""
import sys, json, os, signal
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # ignored where the tests run in the background
    signal.signal(number, signal.SIG_DFL)
{before}
from pathlib import Path
from hotloop.launch.command import run_command
o = run_command([sys.executable, "-S", {str(tmp_path / "child.py")!r}], raw_dir=Path({str(tmp_path)!r}),
    src_dir=Path({str(SRC)!r}))
os.write(1, (json.dumps([o.exit_code]) + "\\n").encode())
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def outcome_of(process: subprocess.Popen[str]) -> tuple[list[str], list[object]]:
    assert process.stdout is not None
    with process:
        *lines, last = process.stdout.read().splitlines()
    assert process.returncode == 0
    return lines, json.loads(last)


def until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def at_a_terminal(tmp_path: Path, command: str) -> tuple[int, int]:
    """A process at a terminal of its own that runs a command (Python source of a list); pid and terminal."""
    code = f"""
import sys
from pathlib import Path
from hotloop.launch.command import run_command
raw, src = Path({str(tmp_path)!r}), Path({str(SRC)!r})
raise SystemExit(run_command({command}, raw_dir=raw, src_dir=src).exit_code)
"""
    pid, terminal = pty.fork()
    if pid == 0:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        os.execve(sys.executable, [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": path})
    return pid, terminal


def test_a_terminal_stays_a_terminal(tmp_path: Path) -> None:
    words = ["sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo all three"]
    pid, terminal = at_a_terminal(tmp_path, repr(words))
    out = b""
    try:
        while piece := os.read(terminal, 4096):
            out += piece
    except OSError:  # the other end is closed
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    assert out.strip() == b"all three"


#: Counts how often a signal comes, and says so with its exit code.
COUNTING = """
    import signal, time
    got = []
    signal.signal(signal.{name}, lambda *_: got.append(1))
    print("ready", flush=True)
    while not got:
        time.sleep(0.01)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        time.sleep(0.01)
    raise SystemExit(40 + len(got))
"""


def test_ctrl_c_at_the_terminal_reaches_the_command_once_and_hotloop_waits(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(dedent(COUNTING.format(name="SIGINT")))
    pid, terminal = at_a_terminal(tmp_path, f'[sys.executable, "-S", {str(child)!r}]')
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 41


def test_a_second_sigterm_at_once_does_not_kill_a_command_that_is_saving(tmp_path: Path) -> None:
    child = """
        import signal, sys, time
        def leave(number, frame):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as the interpreter does when it ends
            print("saving", flush=True)
            time.sleep(0.3)
            sys.exit(5)
        signal.signal(signal.SIGTERM, leave)
        print("ready", flush=True)
        while True:
            signal.pause()
    """
    process = launcher(tmp_path, child)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    lines, found = outcome_of(process)
    assert lines == ["saving"]
    assert found == [5]


@pytest.mark.parametrize(
    ("send", "name"),
    [
        *((os.kill, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT", "SIGUSR1", "SIGUSR2")),
        *((os.killpg, name) for name in ("SIGTERM", "SIGINT")),
    ],
)
def test_a_signal_to_hotloop_alone_or_its_whole_group_reaches_the_command_once(
    tmp_path: Path, send: Callable[[int, int], None], name: str
) -> None:
    process = launcher(tmp_path, COUNTING.format(name=name))
    until_ready(process)
    send(process.pid, signal.Signals[name])
    assert outcome_of(process) == ([], [41])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_that_a_thread_of_a_library_could_take_is_passed_on(tmp_path: Path, name: str) -> None:
    threads = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    process = launcher(tmp_path, COUNTING.format(name=name), before=threads)
    until_ready(process)
    for _ in range(300):
        process.send_signal(signal.Signals[name])
    assert outcome_of(process)[1][0] >= 41  # as often as its handler ran


def test_the_command_starts_with_the_signals_of_a_shell(tmp_path: Path) -> None:
    child = """
        import signal
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        kinds = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)]
        print("ready", flush=True)
        line = next(line for line in open("/proc/self/status") if line.startswith("SigIgn"))
        # Python itself ignores SIGPIPE and SIGXFSZ, as anywhere; 32 and 33 are the C library's
        ignored = {n for n in range(1, 65) if int(line.split()[1], 16) >> n - 1 & 1}
        ignored -= {signal.SIGPIPE, signal.SIGXFSZ, 32, 33}
        print(sorted(blocked), kinds == [signal.SIG_DFL] * 3, ignored)
    """
    process = launcher(tmp_path, child)
    until_ready(process)
    assert outcome_of(process)[0] == ["[] True set()"]


def test_ticks_come_while_the_command_runs_and_once_after_its_end(tmp_path: Path) -> None:
    seen: list[tuple[int, bool]] = []
    flag = tmp_path / "seen"

    def tick(pid: int) -> None:
        seen.append((pid, Path(f"/proc/{pid}").exists()))
        flag.touch()

    outcome = run("sh", "-c", f"until test -e {flag}; do sleep 0.01; done", tmp_path=tmp_path, on_tick=tick)
    assert {pid for pid, _ in seen} == {outcome.pid}
    assert seen[0][1]
    assert not seen[-1][1]


@pytest.mark.parametrize("what", ["missing", "folder", "plain.py", "plain.sh"])
def test_a_command_that_cannot_start_is_named_with_a_hint(tmp_path: Path, what: str) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("plain.py", "plain.sh"):
        (tmp_path / name).write_text("pass\n")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with pytest.raises(UsageError, match=what) as caught:
        run(str(tmp_path / what), tmp_path=tmp_path)
    assert caught.value.hint
    assert caught.value.exit_code == 2
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_the_environment_puts_hotloop_first_and_keeps_the_rest(tmp_path: Path) -> None:
    base = {
        "PYTHONPATH": f"/a{os.pathsep}{os.pathsep}/b",
        "HOME": "/h",
        "HOTLOOP_STEPS": "9",
        "HOTLOOP_HZ": "50",
    }
    found = observed_environment(base, raw_dir=tmp_path / "raw", src_dir=SRC)
    assert found == {
        "PYTHONPATH": os.pathsep.join([str(SRC / "hotloop" / "bootstrap" / "inject"), "/a", "/b"]),
        "HOME": "/h",
        "HOTLOOP_HZ": "50",
        "HOTLOOP_RAW": str(tmp_path / "raw"),
        "HOTLOOP_SRC": str(SRC),
    }
