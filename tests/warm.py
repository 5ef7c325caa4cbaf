"""A process that has torch imported and forks one child for every script: two seconds less than a new one.

The parent (``Warm``) lives in the test process; run as a program this file is the server. A child is what
``python train.py`` would be, but for start-up: what tests of imports, switches and environments of the
interpreter look at needs a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing.process
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Read by the interpreter or by torch when they start: a child of the server has what the server began with.
_READ_AT_START = (
    "PYTHON",
    "OMP_",
    "MKL_",
    "LD_",
    "MALLOC_",
    "KMP_",
    "TORCH",
    "GLIBC_",
    "CUDA",
    "LC_",
    "LANG",
)

#: The file name of the server's code: it begins as no file of a user's does.
_NAME = "<warm>"


class Warm:
    """The server of this test process; started at the first script.

    ``inject``: the folder of hotloop's own ``sitecustomize`` leaves the module search path at once.
    """

    def __init__(self, inject: Path) -> None:
        self._inject = str(inject)
        self._server: subprocess.Popen[str] | None = None
        self._began_with: dict[str, str] = {}

    def suits(self, env: Mapping[str, str]) -> bool:
        """Whether a child of the server has the environment that a script is to start in."""
        if os.environ.get("HOTLOOP_TESTS_COLD"):
            return False
        return not self._began_with or self._at_start(env) == self._began_with

    def run(
        self, script: str, args: list[str], *, folder: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``folder/script`` to its end, as ``subprocess.run`` with ``capture_output`` does."""
        server = self._started(env)
        assert server.stdin is not None and server.stdout is not None
        with tempfile.TemporaryDirectory() as scratch:
            out, err = Path(scratch, "out"), Path(scratch, "err")
            task = {
                "script": script, "args": args, "folder": str(folder), "env": dict(env),
                "out": str(out), "err": str(err), "timeout": timeout,
            }  # fmt: skip
            server.stdin.write(json.dumps(task) + "\n")
            server.stdin.flush()
            answer = server.stdout.readline()
            if not answer:
                self._server = None
                raise RuntimeError("the warm process ended")
            code = json.loads(answer)
            texts = [path.read_text() if path.exists() else "" for path in (out, err)]
        command = [sys.executable, script, *args]
        if code is None:
            raise subprocess.TimeoutExpired(command, timeout, output=texts[0], stderr=texts[1])
        return subprocess.CompletedProcess(command, code, texts[0], texts[1])

    def _started(self, env: Mapping[str, str]) -> subprocess.Popen[str]:
        if self._server is None:
            self._began_with = self._at_start(env)
            bare = {name: value for name, value in env.items() if not name.startswith("HOTLOOP_")}
            self._server = subprocess.Popen(
                [sys.executable, "-c", f"exec(compile(open({__file__!r}).read(), {_NAME!r}, 'exec'))"],
                env=bare,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(self._stop)
        return self._server

    def _stop(self) -> None:
        if self._server is not None and self._server.stdin is not None and self._server.stdout is not None:
            self._server.stdin.close()
            self._server.wait()
            self._server.stdout.close()
            self._server = None

    def _at_start(self, env: Mapping[str, str]) -> dict[str, str]:
        found = {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}
        paths = found.pop("PYTHONPATH", "").split(os.pathsep)
        return {
            **found,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path not in (self._inject, "")),
        }


# -- the server ------------------------------------------------------------------------------------------


def serve() -> Any:
    """Answer each task with the exit code of its child, as ``subprocess`` counts; null: it ran too long."""
    import torch
    import torch._dynamo  # what the first optimizer of a script imports

    answers = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0), "r")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    for line in iter(requests.readline, ""):
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            requests.close()
            answers.close()
            os.close(nothing)
            return _become(task, torch)
        answers.write(json.dumps(_awaited(pid, task["timeout"])) + "\n")
        answers.flush()
    return None


def _awaited(pid: int, timeout: float) -> int | None:
    """Wait for a child as a parent that was told to give up after ``timeout`` seconds."""
    ended = os.pidfd_open(pid)
    try:
        if not select.select([ended], [], [], timeout)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
    finally:
        os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(task: dict[str, Any], torch: Any) -> Any:
    """Take on what the script is to see; returns the call that runs it."""
    for descriptor, path in ((1, task["out"]), (2, task["err"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(task["folder"])
    os.environ.clear()
    os.environ.update(task["env"])
    sys.argv[:] = [task["script"], *task["args"]]
    sys.path[0] = os.path.realpath(task["folder"])
    multiprocessing.process.ORIGINAL_DIR = task["folder"]  # type: ignore[attr-defined]
    sys.modules.pop("hotloop_patch", None)
    if "HOTLOOP_RAW" in os.environ:
        from importlib.util import module_from_spec, spec_from_file_location

        place = Path(os.environ["HOTLOOP_SRC"], "hotloop", "bootstrap", "inject", "sitecustomize.py")
        spec = spec_from_file_location("inject", place)
        assert spec is not None and spec.loader is not None
        inject = module_from_spec(spec)
        spec.loader.exec_module(inject)
        inject._start_hotloop(torch, time.perf_counter_ns())

    main = type(sys)("__main__")
    main.__file__ = script = str(Path(task["folder"], task["script"]))
    main.__builtins__ = __builtins__
    main.__spec__ = None
    sys.modules["__main__"] = main

    def run() -> None:
        exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)

    return run


def _ended(run: Any) -> int:
    """Run the script and what the interpreter runs at exit; what it raises is told as that tells it."""
    code = 0
    try:
        run()
    except SystemExit as end:
        code = _exit_code(end.code)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == _NAME:
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return code


def _exit_code(value: Any) -> int:
    if value is None or isinstance(value, int):
        return (value or 0) & 0xFF
    print(value, file=sys.stderr)
    return 1


if __name__ == "__main__":
    if (found := serve()) is not None:
        code = _ended(found)
        # To take two thousand modules of a forked process apart costs a second.
        os._exit(code)
