"""Whether a signal that reached hotloop was meant for its whole process group: the command has it then.

Nothing in a signal tells. So a silent process sits in the same group: when a signal ends it too, the group
was meant. Passing that signal on would give the command a second Ctrl-C in the middle of its clean-up.
"""

from __future__ import annotations

import os
import signal
from time import monotonic, sleep
from typing import Final

from hotloop.launch.signals import PASSED_ON

#: How long the kernel may take to end the silent process.
_GRACE_S: Final = 0.1


class GroupSentinel:
    """The silent process; it ends with hotloop, however that ends."""

    def __init__(self) -> None:
        self._pid = 0
        self._input, self._lifeline = os.pipe()
        self._start()

    def _start(self) -> None:
        actions = [
            (os.POSIX_SPAWN_DUP2, self._input, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        # Reads until hotloop's end of the pipe closes; no core file when SIGQUIT ends it.
        command = ["/bin/sh", "-c", "ulimit -c 0; exec cat"]
        try:
            self._pid = os.posix_spawn(
                command[0],
                command,
                {"PATH": os.defpath},
                file_actions=actions,
                setsigmask=[],
                setsigdef=_ENDS_IT,
            )
        except OSError:
            self._pid = 0

    def was_hit(self, number: int) -> bool:
        """Whether the whole group got this signal, which hotloop has just received."""
        if not self._pid:  # no sentinel: the terminal's signals reach the group, others come alone
            return number in (signal.SIGINT, signal.SIGQUIT)
        until = monotonic() + _GRACE_S
        while True:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                self._start()
                return os.waitstatus_to_exitcode(status) == -number
            if monotonic() >= until:
                return False
            sleep(0.001)

    def close(self) -> None:
        """End the silent process."""
        os.close(self._lifeline)
        os.close(self._input)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # stopped, it would not read the end of its pipe
            os.waitpid(self._pid, 0)
            self._pid = 0


_ENDS_IT: Final = (*PASSED_ON, signal.SIGPIPE)
