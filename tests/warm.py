"""A process that has torch imported and forks one child for every script: two seconds less than a new one.

The parent (``Warm``) lives in the test process; run as a program this file is the server. A child is what
``python train.py`` would be, but for start-up: what tests of imports, switches and environments of the
interpreter look at needs a process of its own. A child may also be ``python -m hotloop``: the scripts that it
starts are children of its own, forked before it imported anything.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing.process
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

#: Read by the interpreter or by torch when they start: a child of the server has what the server began with.
_READ_AT_START = (
    "PYTHON", "OMP_", "MKL_", "LD_", "MALLOC_", "KMP_", "TORCH", "GLIBC_", "CUDA", "LC_", "LANG",
)  # fmt: skip

#: How ``launch.throwaway`` starts what it starts first.
_WITHIN = "-ISB"
#: Each takes the memory of an imported torch.
_MOST_SERVERS = 3
#: The scripts of a hotloop that begin warm, and of one that races; it starts further ones itself.
_READY, _READY_TO_RACE = 4, 16

#: Most of what a verb imports, a third of a second: the server has it, and a script finds none of hotloop.
_VERBS_IMPORT = (
    "hotloop.cli.main", "hotloop.diagnose.rules", "hotloop.flow.examine", "hotloop.flow.export",
    "hotloop.flow.fix", "hotloop.flow.sure", "hotloop.flow.verify", "hotloop.report.html",
    "hotloop.report.terminal", "numpy.ma", "rich.text",
)  # fmt: skip

#: The file name of the server's code: it begins as no file of a user's does.
_NAME = "<warm>"


class Warm:
    """The servers of this test process, one for each environment that Python begins with, up to three;
    started at the first script.

    ``inject``: the folder of hotloop's own ``sitecustomize`` leaves the module search path at once.
    """

    def __init__(self, inject: Path) -> None:
        self._inject = str(inject)
        self._servers: dict[str, subprocess.Popen[str]] = {}

    def suits(self, env: Mapping[str, str]) -> bool:
        """Whether a child of the server has the environment that a script is to start in."""
        if os.environ.get("HOTLOOP_TESTS_COLD"):
            return False
        return len(self._servers) < _MOST_SERVERS or self._at_start(env) in self._servers

    def run(
        self,
        script: str,
        args: list[str],
        *,
        folder: Path,
        env: Mapping[str, str],
        timeout: float,
        first: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run ``folder/script`` to its end, as ``subprocess.run`` with ``capture_output`` does; no script:
        ``-m hotloop``, after the statements ``first``.
        """
        server = self._started(env)
        assert server.stdin is not None and server.stdout is not None
        with tempfile.TemporaryDirectory() as scratch:
            out, err = Path(scratch, "out"), Path(scratch, "err")
            task = {
                "script": script, "args": args, "folder": str(folder), "env": dict(env),
                "out": str(out), "err": str(err), "timeout": timeout, "first": first,
            }  # fmt: skip
            server.stdin.write(json.dumps(task) + "\n")
            server.stdin.flush()
            answer = server.stdout.readline()
            if not answer:
                self._servers = {key: one for key, one in self._servers.items() if one is not server}
                raise RuntimeError("the warm process ended")
            code = json.loads(answer)
            texts = [path.read_text() if path.exists() else "" for path in (out, err)]
        command = [sys.executable, script, *args]
        if code is None:
            raise subprocess.TimeoutExpired(command, timeout, output=texts[0], stderr=texts[1])
        return subprocess.CompletedProcess(command, code, texts[0], texts[1])

    def _started(self, env: Mapping[str, str]) -> subprocess.Popen[str]:
        key = self._at_start(env)
        if key not in self._servers:
            if not self._servers:
                atexit.register(self._stop)
            bare = {name: value for name, value in env.items() if not name.startswith("HOTLOOP_")}
            self._servers[key] = subprocess.Popen(
                [sys.executable, "-c", f"exec(compile(open({__file__!r}).read(), {_NAME!r}, 'exec'))"],
                env=bare,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._servers[key]

    def _stop(self) -> None:
        for server in self._servers.values():
            if server.stdin is not None and server.stdout is not None:
                server.stdin.close()
                server.wait()
                server.stdout.close()
        self._servers = {}

    def _at_start(self, env: Mapping[str, str]) -> str:
        found = {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}
        paths = found.pop("PYTHONPATH", "").split(os.pathsep)
        found["PYTHONPATH"] = os.pathsep.join(path for path in paths if path not in (self._inject, ""))
        return json.dumps(found, sort_keys=True)


# -- the server ------------------------------------------------------------------------------------------


def serve() -> Any:
    """Answer each task with the exit code of its child, as ``subprocess`` counts; null: it ran too long."""
    import torch
    import torch._dynamo  # what the first optimizer of a script imports

    for name in _VERBS_IMPORT:
        import_module(name)

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
            return _become(task, torch) if task["script"] else _become_hotloop(task, torch)
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


def _become_hotloop(task: dict[str, Any], torch: Any) -> Any:
    """Take on what ``python -m hotloop`` is to see; returns the call that runs it.

    Its scripts wait for their turn: a process that hotloop spawns is one of them, if it runs a Python file.
    """
    _outputs(task)
    waiting: list[tuple[int, socket.socket]] = []
    for _ in range(_READY_TO_RACE if task["args"][:1] == ["tune"] else _READY):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            ours.close()
            for _, other in waiting:
                other.close()
            return _wait_for_turn(theirs, torch)
        theirs.close()
        waiting.append((pid, ours))

    spawn = os.posix_spawn

    def spawned(path: str, argv: list[str], env: dict[str, str], **more: Any) -> int:
        command = argv[4:] if argv[1:2] == [_WITHIN] else argv
        file = Path(*command[1:2])
        cold = not waiting or {path, command[0]} != {sys.executable} or "HOTLOOP_PATCH" in env
        if cold or file.suffix != ".py" or not file.is_file():
            return spawn(path, argv, env, **more)
        actions = [one for one in more.get("file_actions", ()) if one[0] == os.POSIX_SPAWN_DUP2]
        script = {
            "within": argv[2:4] if command is not argv else [], "to": [target for _, _, target in actions],
            "script": command[1], "args": command[2:], "folder": str(Path.cwd()), "env": env,
        }  # fmt: skip
        pid, line = waiting.pop(0)
        with line:
            socket.send_fds(line, [json.dumps(script).encode()], [source for _, source, _ in actions])
        return pid

    handles = subprocess.Popen._get_handles  # type: ignore[attr-defined]

    def above(*given: Any) -> list[int]:
        """Where outputs go, by other handles than our own: with these Popen would not use ``posix_spawn``."""
        return [one if one not in (1, 2) else os.dup(one) for one in handles(*given)]

    subprocess.Popen._get_handles = above  # type: ignore[attr-defined]
    os.posix_spawn = spawned  # type: ignore[assignment]
    os.chdir(task["folder"])
    os.environ.clear()
    os.environ.update(task["env"])
    sys.argv[:] = ["hotloop", *task["args"]]

    def run() -> None:
        from hotloop.cli.main import main

        exec(task["first"])
        raise SystemExit(main())

    return run


def _wait_for_turn(line: socket.socket, torch: Any) -> Any:
    """The script that hotloop asks for, or nothing when hotloop is gone."""
    with line:
        message, descriptors, _, _ = socket.recv_fds(line, 1 << 20, 8)
    if not message:
        os._exit(0)
    task = json.loads(message)
    for source, target in zip(descriptors, task.pop("to"), strict=True):
        os.dup2(source, target)
        os.close(source)
    if task["within"]:
        _enter(*task["within"])
    return _become(task, torch)


def _enter(file: str, plan: str) -> None:
    """What ``python -ISB within.py PLAN`` does before it becomes the command."""
    names: dict[str, Any] = {"__name__": "within"}
    exec(compile(Path(file).read_bytes(), file, "exec"), names)
    names["_become"] = list
    sys.argv[:] = [file, plan]
    names["main"]()


def _outputs(task: dict[str, Any]) -> None:
    for descriptor, path in ((1, task["out"]), (2, task["err"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, descriptor)
        os.close(file)


def _become(task: dict[str, Any], torch: Any) -> Any:
    """Take on what the script is to see; returns the call that runs it."""
    if "out" in task:
        _outputs(task)
    os.chdir(task["folder"])
    os.environ.clear()
    os.environ.update(task["env"])
    sys.argv[:] = [task["script"], *task["args"]]
    sys.path[0] = str(Path(task["folder"], task["script"]).resolve().parent)
    multiprocessing.process.ORIGINAL_DIR = task["folder"]  # type: ignore[attr-defined]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("hotloop", "hotloop_patch")]:
        del sys.modules[name]
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
