"""The signals that hotloop is sent while the user's command runs, one after the other, and whom they are for.

They are caught, not blocked: a blocked signal goes to any thread of a library that does not block it, and
Python raises it in the main thread. What was ignored when hotloop started (``nohup``) stays ignored.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Self

#: Passed on to the command. Batch systems announce the end of a job with SIGUSR1 or SIGUSR2.
PASSED_ON: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
#: How long the kernel may take to end the silent process.
_GRACE_S: Final = 0.1


class Signals:
    """Catches ``PASSED_ON`` and SIGCHLD inside of a ``with``; of the main thread."""

    def __enter__(self) -> Self:
        self._waiting: deque[int] = deque()
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._fd_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._before: dict[int, Any] = {}
        for number in (signal.SIGCHLD, *PASSED_ON):
            handler = signal.getsignal(number)
            if number == signal.SIGCHLD or handler not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, _caught)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        for end in self._pipe:
            os.close(end)

    def next(self, timeout_s: float) -> int:
        """The next signal, 0 when none came. The same one sent many times at once is one."""
        if not self._waiting and select.select([self._pipe[0]], [], [], timeout_s)[0]:
            with suppress(BlockingIOError):
                self._waiting.extend(dict.fromkeys(os.read(self._pipe[0], 65536)))
        return self._waiting.popleft() if self._waiting else 0


def _caught(_number: int, _frame: FrameType | None) -> None:
    """The number is in the pipe."""


class GroupSentinel:
    """Whether a signal that reached hotloop was meant for its whole process group: the command has it then.

    Nothing in a signal tells. So a silent process sits in the same group: when a signal ends it too, the
    group was meant. Passing that signal on would give the command a second Ctrl-C in the middle of its
    clean-up. The silent process ends with hotloop, however that ends.
    """

    def __init__(self) -> None:
        # Reads until hotloop's end of the pipe closes; no core file when SIGQUIT ends it.
        command = ["/bin/sh", "-c", "ulimit -c 0; exec cat"]
        nowhere = subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # no room for one more process
            self._process = subprocess.Popen(
                command, env={"PATH": os.defpath}, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere
            )

    def was_hit(self, number: int) -> bool:
        """Whether the whole group got this signal, which hotloop has just received, or one like it before."""
        if self._process is None:  # the terminal's signals reach the group, others come alone
            return number in (signal.SIGINT, signal.SIGQUIT)
        try:
            return self._process.wait(_GRACE_S) == -number
        except subprocess.TimeoutExpired:
            return False

    @property
    def pid(self) -> int:
        """Of the silent process, 0 where there is none."""
        return self._process.pid if self._process is not None else 0

    def close(self) -> None:
        """End the silent process."""
        if self._process is not None:
            self._process.kill()  # stopped, it would not read the end of its pipe
            self._process.communicate()
