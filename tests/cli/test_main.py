"""The command line's manners: exit codes, words, no traceback for a user's mistake."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.running import SRC, hotloop, succeeded

from hotloop.cli import demo, run
from hotloop.cli.arguments import run_of
from hotloop.cli.main import main
from hotloop.cli.output import folded, status


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "no command to run"),
        (["run", "--", ""], "no command given"),
        (["run", "--steps", "0", "--", "true"], "from 1 on"),
        (["run", "--steps", "many", "--", "true"], "whole number"),
        (["run", "--", "/no/such/program"], "/no/such/program"),
        (["report", "/no/such/run"], "/no/such/run"),
        (["report"], "no run is given"),
        (["verify", "--", "sh", "train.sh"], "no change to verify"),
        (["demo", "no-such-workload"], "no-such-workload"),
        (["no-such-verb"], "no-such-verb"),
    ],
)
def test_bad_input_is_one_clear_error_and_exit_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = hotloop(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr
    assert not any(tmp_path.glob("*/*"))  # no run folder


def test_a_run_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("mine")
    done = hotloop("run", "--out", str(tmp_path), "--", "true")
    assert done.returncode == 2 and "not empty" in done.stderr
    assert (tmp_path / "keep.txt").read_text() == "mine"


def test_a_run_folder_is_named_for_the_script_not_for_an_option_of_its_launcher(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text("")
    succeeded(hotloop("run", "--", sys.executable, "-W", "ignore", "fit.py", folder=tmp_path))
    (folder,) = (tmp_path / "hotloop-runs").iterdir()
    assert folder.name.endswith("-fit")


def test_a_mistyped_script_starts_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    done = hotloop("run", "--", "python", "trian.py", folder=tmp_path)
    assert done.returncode == 2
    assert "no file trian.py" in done.stderr and "did you mean train.py?" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["train.py"]


def test_a_folder_of_trials_names_the_runs_inside(tmp_path: Path) -> None:
    (tmp_path / "tuned" / "trials" / "000").mkdir(parents=True)
    (tmp_path / "tuned" / "trials" / "000" / "run.json").write_text("{}")
    done = hotloop("report", "tuned", folder=tmp_path)
    assert done.returncode == 2 and "give one of them: tuned/trials/000" in done.stderr


def test_a_command_that_never_reaches_torch_still_gets_a_report(tmp_path: Path) -> None:
    words = ("--", sys.executable, "-c", "print('hello')")
    done = hotloop("run", "--out", str(tmp_path / "run"), *words)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["schema"], report["bottleneck"], report["num_steps"]) == (1, "none", 0)
    assert report["findings"] == [] and (tmp_path / "run" / "report.html").is_file()
    assert "torch" in done.stderr
    done = hotloop("run", "--json", "--out", str(tmp_path / "other"), *words)
    assert json.loads(done.stdout)["exit_code"] == 0 and "hello" in done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    assert hotloop("run", "--out", str(folder), "--", "true").returncode == 0
    return folder


@pytest.mark.parametrize("option", ["--html", "--json", "--perfetto"])
def test_a_file_that_cannot_be_written_is_one_clear_error(recorded: Path, option: str) -> None:
    done = hotloop("report", str(recorded), option, "/no/such/folder/x.json")
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: cannot write /no/such/folder/x.json")


def test_json_may_stand_before_the_run(recorded: Path) -> None:
    before, after = hotloop("report", "--json", str(recorded)), hotloop("report", str(recorded), "--json")
    assert before.returncode == 0 and json.loads(before.stdout) == json.loads(after.stdout)


def test_output_that_cannot_be_written_is_no_answer_of_a_check(recorded: Path) -> None:
    command = [sys.executable, "-m", "hotloop", "report", str(recorded)]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert (done.returncode, done.stderr) == (3, "error: No space left on device\n")


@pytest.mark.parametrize("streams", ["2>/dev/full", "--json >/dev/full", "2>&-", ">&- 2>&-"])
def test_the_commands_exit_code_is_kept_where_the_report_cannot_be_printed(
    tmp_path: Path, streams: str
) -> None:
    option, _, redirected = streams.rpartition(" ") if streams.startswith("--") else ("", "", streams)
    line = f"exec '{sys.executable}' -m hotloop run {option} --out '{tmp_path}/run' -- sh -c 'exit 7'"
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    assert subprocess.run(["sh", "-c", f"{line} {redirected}"], env=environment).returncode == 7
    assert json.loads((tmp_path / "run" / "report.json").read_text())["exit_code"] == 7


WAITING = """
import os, threading, time, torch
class Slow(torch.utils.data.Dataset):
    __getitem__ = lambda self, index: time.sleep(60)
def index():
    while time.monotonic() < end:
        sum(range(1000))
end = time.monotonic() + 4
if {workers} < 0:
    raise SystemExit(index())
threading.Timer(5, lambda: os.kill(os.getpid(), 2)).start()
for batch in torch.utils.data.DataLoader(Slow(), sampler=range(9), num_workers={workers}):
    pass
"""


@pytest.mark.parametrize(
    ("workers", "line"),
    [pytest.param(0, 4, marks=pytest.mark.nightly), (2, 4), pytest.param(-1, 7, marks=pytest.mark.nightly)],
)
def test_a_run_without_a_step_says_where_it_stood(tmp_path: Path, workers: int, line: int) -> None:
    (tmp_path / "train.py").write_text(WAITING.format(workers=workers))
    hotloop("run", "--out", "run", "--", sys.executable, "train.py", folder=tmp_path)
    verdict = json.loads((tmp_path / "run" / "report.json").read_text())["verdict"]
    assert verdict.startswith("No training step was seen: ")
    assert f"hottest line train.py:{line}" in verdict
    assert f"reached from train.py:{12 if workers >= 0 else 10}" in verdict
    assert ("waiting for data (DataLoader at train.py:12)" in verdict) is (workers >= 0)


def test_a_python_without_torch_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cpu.so: cannot open it')\n")
    (tmp_path / "train.py").write_text("import torch\n")
    done = hotloop("run", "--out", "run", "--", sys.executable, "-u", "train.py", folder=tmp_path)
    assert done.returncode == 1
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["without_torch"] == [sys.executable]
    words = " ".join(done.stderr.split())
    assert f"No training process was seen: {sys.executable} could not import torch." in words
    assert "Run the command with the Python that has torch" in words
    assert "-I, -E or -S" not in words
    assert not (tmp_path / "run" / "without-torch").exists()


@pytest.mark.parametrize("file", ["random.py", "ssl.py", ""])
def test_what_keeps_a_torch_that_is_there_from_being_imported_is_named(tmp_path: Path, file: str) -> None:
    own = tmp_path / "own"
    own.mkdir()
    if file:
        (own / file).write_text("def own(): pass\n")
    name = file.removesuffix(".py")
    (own / "torch.py").write_text(f"import {name}\n{name}.Random\n" if file else "{}['a b']\n")
    (own / "train.py").write_text("import torch\n")
    done = hotloop("run", "--out", "run", "--", sys.executable, "-u", "own/train.py", folder=tmp_path)
    assert done.returncode == 1
    words = " ".join(done.stderr.split())
    shadowed = f"Import torch raised AttributeError: module '{name}' has no attribute 'Random'."
    told = shadowed if file else "Import torch raised KeyError: 'a b'."
    assert told.replace(" ", "") in words.replace(" ", ""), "a long path has lines of its own"
    assert "Python that has torch" not in words


@pytest.mark.parametrize(
    ("environment", "colored"),
    [({"TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_gets_colours_unless_told_not_to(
    recorded: Path, environment: dict[str, str], colored: bool
) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    terminal, end = pty.openpty()
    words = [sys.executable, "-m", "hotloop", "report", str(recorded)]
    with subprocess.Popen(
        words, stdout=end, env={**kept, "TERM": "xterm", "PYTHONPATH": str(SRC), **environment}
    ) as process:
        os.close(end)
        shown = b""
        try:
            while piece := os.read(terminal, 4096):
                shown += piece
        except OSError:  # closed
            pass
    os.close(terminal)
    assert process.returncode == 0 and b"No training process was seen" in shown
    assert (b"\x1b[" in shown) == colored


def test_a_verification_that_cannot_begin_leaves_nothing_and_writes_into_no_run(tmp_path: Path) -> None:
    words = ("verify", "--apply", "num-workers=2", "--out")
    done = hotloop(*words, "new", "--", "no-such-program", folder=tmp_path)
    assert done.returncode == 2 and "command not found: no-such-program" in done.stderr
    assert not list(tmp_path.iterdir())
    (tmp_path / "report.json").write_text("{}")
    done = hotloop(*words, str(tmp_path), "--", "sh", "-c", "exit 3", folder=tmp_path)
    assert done.returncode == 2 and f"{tmp_path} is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_without_a_run_the_newest_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert "hotloop-runs has none" in capsys.readouterr().err
    for number, name in enumerate(("b", "a", "tuning/trials/0", "tuning/trials/1")):
        folder = tmp_path / "hotloop-runs" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        os.utime(folder / "run.json", (number, number))
    assert run_of(None) == Path("hotloop-runs/a")
    (folder / "raw").mkdir()  # it goes on
    assert run_of(None) == Path("hotloop-runs/tuning/trials/1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rune"], "did you mean run?"),
        (["empty.py", "--lr", "3"], "did you mean hotloop run -- python empty.py --lr 3?"),
        (["env", "a"], "did you mean hotloop run -- env a?"),
        (["report", "--jsn"], "did you mean --json?"),
        (["audit"], "no Python file in ."),
        (["bake", "empty.py:data", "out"], "empty.py:data has no samples"),
        (["analyze", "empty.py"], ""),
        (["remedies", "workrs"], "there is no remedy 'workrs'"),
        (["run", "--apply", "host/sync-in-step", "--", "true"], "its remedies: defer-item"),
    ],
)
def test_nothing_to_work_on_and_wrong_names_are_mistakes(tmp_path: Path, words: list[str], said: str) -> None:
    if words != ["audit"]:
        (tmp_path / "empty.py").write_text("data = []\n")
    done = hotloop(*words, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


THREE = """
import sys
from hotloop.cli.main import main
words = [verb.split() for verb in sys.argv[1:]]
sys.exit(sum(main(one) << 2 * i for i, one in enumerate(words)))
"""


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": name} for name in ("ascii", "gbk", "latin-1")]
    + [{"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_an_encoding_without_a_sign_is_no_failure(
    tmp_path: Path, recorded: Path, environment: dict[str, str]
) -> None:
    shutil.copytree(recorded, tmp_path / "größe")
    (tmp_path / "größe.log").write_text("lorem ipsum\n")
    (tmp_path / "größe.py").write_text("import torch\nloader = torch.utils.data.DataLoader([1])\n")
    done = subprocess.run(
        [sys.executable, "-c", THREE, "report größe", "audit größe.py", "analyze größe.log"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(SRC), **environment},
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 << 4, done.stderr
    assert b"e.log" in done.stdout and b"Traceback" not in done.stderr
    assert json.loads('"«größe» \U0001f600"'.encode("ascii", "hotloop")) == "«größe» \U0001f600"


def test_a_demo_of_a_wheel_runs_beside_its_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_NEEDS", ())
    monkeypatch.setattr(demo, "_workloads_folder", lambda: (tmp_path / "workloads", True))
    monkeypatch.setattr(run, "main", lambda options: options.out != tmp_path / "run")
    assert main(["demo"]) == 0


def test_what_takes_long_is_said_in_a_pipe_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert max(map(len, folded("a word " * 40).splitlines())) <= 50
    with status("running a patched copy"):
        assert capsys.readouterr().err == "hotloop: running a patched copy\n"


def test_remedies_are_listed_by_name_and_by_finding() -> None:
    one = hotloop("remedies", folder=Path.cwd(), env={"COLUMNS": "50"}).stdout
    assert "\nnum-workers=NUM_WORKERS  exact, live and source\n" in one
    assert all(len(line) <= 50 for line in one.splitlines())
    asked = json.loads(hotloop("remedies", "--json", "input/single-process").stdout)
    assert "num-workers" in [remedy["id"] for remedy in asked]


@pytest.mark.parametrize(
    "name", ["tune", "input/slow-sample", "reference/cli", "docs/rules/input/slow-sample.md"]
)
def test_a_page_travels_with_the_package(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("    ")), "code stays whole"
    assert lines[0].strip() and "```" not in "".join(lines)


def test_pages_are_listed_and_a_mistyped_one_gets_its_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    listed = capsys.readouterr().out
    assert {"what-if", "host/sync-in-step", "reference/report"} <= {
        line.split()[0] for line in listed.splitlines()
    } and "```" not in listed
    assert main(["docs", "wat-if"]) == 2
    assert "did you mean what-if?" in capsys.readouterr().err
