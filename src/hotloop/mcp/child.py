"""``hotloop VERB`` as a process of its own: bounded in time, and over when nobody waits for it any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Any, Final

import anyio
from anyio.abc import Process

from hotloop.launch.guard import end

#: Seconds that an interrupted verb has to write its report; one that nobody waits for has less.
_REPORT_S: Final = 30.0
_GONE_S: Final = 1.0
_EVERY_S: Final = 2.0
_LAST_BYTES: Final = 4000

#: Told how many seconds have passed, and the last line on standard error.
Say = Callable[[float, str], Awaitable[None]]

_living: set[int] = set()


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a verb ended: exit code, standard output, the end of standard error."""

    code: int
    out: str
    err: str
    timed_out: bool


async def hotloop(words: Sequence[str], *, cwd: Path, timeout_s: float, say: Say) -> Done:
    """Run a verb. Behind ``timeout_s`` it is interrupted as by Ctrl-C, and killed where it does not end."""
    # -P: a folder of the user's that is called hotloop is not ours.
    command = [sys.executable, "-P", "-m", "hotloop", *words]
    with TemporaryFile() as out, TemporaryFile() as err:
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, start_new_session=True
        )
        _living.add(process.pid)
        patience_s = _GONE_S
        try:
            with anyio.move_on_after(timeout_s) as bound, anyio.CancelScope() as telling:
                async with anyio.create_task_group() as group:
                    group.start_soon(_tell, err, say)
                    await process.wait()
                    telling.cancel()
            patience_s = _REPORT_S
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, patience_s)
            _living.discard(process.pid)
        return Done(
            code=process.returncode or 0,
            out=_read(out),
            err=_read(err, _LAST_BYTES),
            timed_out=bound.cancelled_caught,
        )


def end_all(number: int, _frame: Any) -> None:
    """A handler of signals: what runs does not outlive the server."""
    for pid in _living:
        end(pid)
    os._exit(128 + number)


async def _tell(err: IO[bytes], say: Say) -> None:
    begun_s = monotonic()
    while True:
        await anyio.sleep(_EVERY_S)
        lines = _read(err, _LAST_BYTES).splitlines()
        await say(monotonic() - begun_s, lines[-1] if lines else "")


async def _end(process: Process, patience_s: float) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with anyio.move_on_after(patience_s):
        await process.wait()
        return
    end(process.pid)
    await process.wait()


def _read(file: IO[bytes], last_bytes: int | None = None) -> str:
    """What a process wrote, by its own position in the file that it shares with us."""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - last_bytes) if last_bytes else 0
    return os.pread(file.fileno(), size - start, start).decode("utf-8", "replace")
