"""Where states come from: a run folder on this machine, or ``hotloop watch`` on another one."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hotloop.errors import HotloopError, UsageError, told
from hotloop.foreign import clean
from hotloop.monitor.diagnosis import Reporter, cleaned
from hotloop.monitor.snapshot import SCHEMA, SHARE, Watched

#: Seconds between two looks: at least, and at most where a look is dear.
_LEAST_S: Final = 1.0
_MOST_S: Final = 15.0
_REMOTE: Final = re.compile(r"(?P<host>[A-Za-z0-9_][\w.@-]*):(?P<path>[^:].*)")
_LONGEST: Final = 8 << 20  # bytes of one state

State = dict[str, Any]


def states(run: str | Path, reporter: Reporter) -> Iterator[State]:
    """The states of a run, ``FOLDER`` or ``HOST:PATH``, the last of a finished one. Raises HotloopError."""
    found = _REMOTE.fullmatch(str(run))
    if found is None or Path(run).exists():
        return _of_folder(Path(run), reporter)
    return _of_host(found["host"], found["path"])


def _of_folder(folder: Path, reporter: Reporter) -> Iterator[State]:
    watched = Watched(folder, reporter)
    state, spent_s = watched.snapshot(), 0.0  # the first look is dearer than those after it
    while True:
        yield state
        if watched.over:
            return
        time.sleep(min(_MOST_S, max(_LEAST_S, spent_s / SHARE)))
        begun_s = time.thread_time()
        try:
            state = watched.snapshot()
        except HotloopError:
            raise
        except Exception as error:  # the next look may succeed
            said = clean(f"a look failed: {told(error)}")
            state = {**state, "warnings": list(dict.fromkeys([said, *state["warnings"]]))}
        spent_s = time.thread_time() - begun_s


def _of_host(host: str, path: str) -> Iterator[State]:
    """Over ssh, which asks what it has to at this terminal."""
    command = ["ssh", "-T", host, "hotloop", "watch", "--jsonl", _quoted(path)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        raise UsageError(
            f"ssh cannot be started: {error.strerror}", hint="install ssh, or copy the run folder"
        ) from error
    assert process.stdout is not None
    try:
        for line in iter(lambda: process.stdout.readline(_LONGEST), b""):  # type: ignore[union-attr]
            state = _state(line)
            if state is None:
                raise HotloopError(
                    f"{host} sent what is no state", hint=f"try: ssh {host} hotloop watch --jsonl {path}"
                )
            yield state
        if process.wait():
            raise HotloopError(
                f"hotloop watch on {host} ended with exit code {process.returncode}",
                hint=f"is hotloop on the path there? try: ssh {host} hotloop --version",
            )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _state(line: bytes) -> State | None:
    try:
        state = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cleaned(state) if isinstance(state, dict) and state.get("schema") == SCHEMA else None


def _quoted(path: str) -> str:
    """A word for the shell of the other machine; its ``~`` stays one."""
    home, _, rest = path.partition("/") if path.startswith("~/") else ("", "", path)
    quoted = "'" + rest.replace("'", "'\\''") + "'"
    return f"{home}/{quoted}" if home else quoted
