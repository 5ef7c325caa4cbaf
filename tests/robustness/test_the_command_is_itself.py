"""A command under hotloop says, does and returns what it does without."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import whole

#: It asks about itself, and then has torch's own tools do so.
IDENTITY = """
    import __main__, traceback
    epoch(); epoch(DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork"))
    path = [one for one in sys.path if not os.path.basename(one).startswith("tmp")]  # torch 2.6 adds one
    print(sys.argv, sys.orig_argv[1:], __name__, __file__, os.getcwd(), path)
    print(__package__, __spec__ is None)
    print(sorted(vars(__main__)), sys.flags, torch.__spec__.loader.__class__, digest(), torch.rand(1).item())
    print("to stderr", file=sys.stderr)
    torch.autograd.set_detect_anomaly(True)
    step(*data[:8])
    root = torch.sqrt(model.weight - 1e9)
    try:
        root.sum().backward()
    except RuntimeError:
        traceback.print_exc()
    torch.autograd.set_detect_anomaly(False)
    inner = torch.nn.Sequential(torch.nn.ReLU())
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), inner, torch.nn.Linear(8, 1))
    step(*data[:8])
    with torch.profiler.profile(with_stack=True) as profile:
        step(*data[:8])
    print(sorted(event.name for event in profile.events() if event.name.startswith("nn.Module: ")))
    sys.stdout.write("no newline at the end"); sys.exit(3)
"""


@pytest.fixture(
    scope="module",
    params=[pytest.param("train.py 'a b' --x=1", marks=pytest.mark.nightly), "-m pkg.train -v"],
)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], whole.Done]:
    """The script without hotloop, and with it."""
    folder = tmp_path_factory.mktemp("both")
    for name in ("train.py", "pkg/train.py"):
        whole.script(folder, IDENTITY, name)
    command = [sys.executable, *shlex.split(request.param)]
    bare = subprocess.run(command, cwd=folder, env=whole.surroundings(), capture_output=True, text=True)
    return bare, whole.run(command, folder=folder)


def test_argv_names_folder_path_results_output_and_exit_code_are_equal(
    both: tuple[subprocess.CompletedProcess[str], whole.Done],
) -> None:
    bare, done = both
    assert done.stdout == bare.stdout  # modules that the profiler knows are in it, but for torch 2.11 on 3.12
    assert (done.returncode, bare.returncode) == (3, 3)
    assert done.num_backwards == 20
    assert len(done.recording.ranks[0].workers) == 2


def test_the_stack_of_an_anomaly_ends_at_the_line_of_the_script(
    both: tuple[subprocess.CompletedProcess[str], whole.Done],
) -> None:
    bare, done = both
    stack = bare.stderr.partition("USDT:")[0]  # what a profiler of torch says has times in it
    assert stack.startswith("to stderr\n") and "SqrtBackward0' returned nan" in stack
    assert done.stderr.startswith(stack)


@pytest.mark.parametrize(
    ("ending", "code"),
    [("raise RuntimeError('mine')", 1), ("os._exit(5)", 5), ("os.kill(os.getpid(), 11)", 139)],
)
def test_however_it_ends_the_exit_code_is_kept_and_the_steps_are_there(
    tmp_path: Path, ending: str, code: int
) -> None:
    path = whole.script(tmp_path, f"epoch()\nprint('done', flush=True)\n{ending}\n")
    done = whole.run([sys.executable, str(path)], folder=tmp_path, warm=code != 1)
    assert (done.returncode, done.stdout) == (code, "done\n")
    assert done.num_backwards == 8
    assert done.recording.complete
    if code == 1:
        assert done.stderr.count("Traceback") == 1
        assert "RuntimeError: mine" in done.stderr
        assert "hotloop/" not in done.stderr.split("RuntimeError: mine")[0]


def test_ctrl_c_reaches_the_script_and_a_report_is_still_made(tmp_path: Path) -> None:
    path = whole.script(
        tmp_path,
        """
        epoch()
        try:
            print("ready", flush=True)
            while True:
                epoch()
        except KeyboardInterrupt:
            print("saving", digest() != "", flush=True)
            raise
        """,
    )
    words = whole.hotloop_command([sys.executable, str(path)], tmp_path / "run")
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job has it ignored
        os.execve(words[0], words, whole.surroundings())
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while piece := os.read(terminal, 4096):
            seen += piece
    except OSError:  # closed
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert seen.count(b"saving True") == 1
    assert (tmp_path / "run" / "report.json").exists()


def test_sigterm_to_hotloop_lets_the_script_end_by_itself(tmp_path: Path) -> None:
    path = whole.script(
        tmp_path,
        """
        import signal
        stop = []
        signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
        signal.signal(signal.SIGHUP, lambda *_: None)
        print("ready", flush=True)
        while not stop:
            epoch()
        print("saved", flush=True)
        sys.exit(9)
        """,
    )
    process = subprocess.Popen(
        whole.hotloop_command([sys.executable, str(path)], tmp_path / "run"),
        env=whole.surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        for number in (*[signal.SIGHUP] * 50, signal.SIGTERM, signal.SIGTERM):
            process.send_signal(number)
            time.sleep(0.005)
        assert process.stdout.read() == "saved\n"
        process.stderr.read()
    assert process.returncode == 9
    assert (tmp_path / "run" / "report.json").exists()
