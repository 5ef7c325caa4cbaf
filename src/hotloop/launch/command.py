"""The user's command as a child process that cannot tell the difference: its streams, signals and exit code
are its own.

Signals. The command is in hotloop's process group: a Ctrl-C at the terminal, or a signal sent to the group,
reaches it directly, and hotloop goes on waiting. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 sent
to hotloop alone are passed on, so that the command gets each signal once; a second SIGTERM within a second is
the first again. The exit code is the command's; a command killed by signal n gives 128 + n, as a shell says
it (hotloop does not kill itself with the same signal: it has a report to write).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter_ns, time
from typing import IO, Final

from hotloop.errors import UsageError
from hotloop.launch.orphans import Orphans
from hotloop.launch.signals import PASSED_ON, GroupSentinel, Signals

_TICK_S: Final = 0.5
#: A second SIGTERM this close to the first is the same: it would end a command that is saving by its first.
_AGAIN_S: Final = 1.0

#: Set for every run; what an outer hotloop set does not leak into an inner one.
_OURS: Final = frozenset(
    f"HOTLOOP_{name}"
    for name in ("RAW", "SRC", "STEPS", "UNTIL", "PROFILE", "MEMORY", "APPLY", "PATCH", "WHAT_IF", "DRAWS")
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the command ended. Times are of ``hotloop.clock`` except ``start_unix_s``."""

    exit_code: int
    pid: int
    start_ns: int
    end_ns: int
    start_unix_s: float
    interrupted: bool = False  # hotloop was sent a signal while the command ran
    warnings: tuple[str, ...] = ()
    ended_for: str = ""  # why hotloop ended it
    started: bool = True  # False where its writes could not be kept from the user's files after all

    @property
    def wall_s(self) -> float:
        """Seconds from start to end."""
        return (self.end_ns - self.start_ns) / 1e9


def run_command(
    command: Sequence[str],
    *,
    raw_dir: Path,
    src_dir: Path,
    env_extra: Mapping[str, str] | None = None,
    on_tick: Callable[[int], None] | None = None,
    stdout: IO[str] | int | None = None,
    stderr: IO[str] | int | None = None,
    prefix: Sequence[str] = (),
    leave_none: bool = False,
) -> Outcome:
    """Run ``command`` under observation and wait for it.

    ``raw_dir`` receives the raw files; ``src_dir`` is the folder that holds the ``hotloop`` package.
    ``on_tick`` gets the command's pid twice a second and once after it ended; if it raises it is
    not called again and the outcome has a warning. ``stdout`` is a file or descriptor for the command's
    output instead of hotloop's own, ``stderr`` for its errors. ``prefix`` is a program that becomes the
    command. ``leave_none`` ends what the command leaves running. To be called from the main thread. Raises
    UsageError when the command cannot be started.
    """
    if not command or not command[0]:
        raise UsageError("no command given", hint="hotloop run -- python train.py")
    environment = observed_environment(os.environ, raw_dir=raw_dir, src_dir=src_dir) | dict(env_extra or {})
    sys.stdout.flush()
    sys.stderr.flush()
    with Signals() as signals, Orphans() if leave_none else nullcontext() as orphans:
        start_unix_s, start_ns = time(), perf_counter_ns()
        if prefix and shutil.which(command[0]) is None:
            raise _not_started(command[0], FileNotFoundError())
        try:  # with the signals that hotloop itself was started with, and what else is open
            process = subprocess.Popen(
                [*prefix, *command], env=environment, stdout=stdout, stderr=stderr, close_fds=False
            )
        except OSError as error:
            raise _not_started(command[0], error) from error
        wait = _Wait(process=process, signals=signals, on_tick=on_tick, orphans=orphans)
        wait.until_over()
    return Outcome(
        exit_code=128 - wait.code if wait.code < 0 else wait.code,
        pid=process.pid,
        start_ns=start_ns,
        end_ns=wait.end_ns,
        start_unix_s=start_unix_s,
        interrupted=wait.interrupted,
        warnings=tuple(wait.warnings),
    )


def observed_environment(base: Mapping[str, str], *, raw_dir: Path, src_dir: Path) -> dict[str, str]:
    """The environment under which every Python process of a command is observed."""
    inject = str(src_dir / "hotloop" / "bootstrap" / "inject")
    old = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != inject]
    environment = {name: value for name, value in base.items() if name not in _OURS}
    environment["PYTHONPATH"] = os.pathsep.join([inject, *old])
    environment["HOTLOOP_RAW"] = str(raw_dir.absolute())
    environment["HOTLOOP_SRC"] = str(src_dir.absolute())
    return environment


def _not_started(name: str, error: OSError) -> UsageError:
    """What to say and what to try where a command could not be started."""
    path = Path(name)
    if isinstance(error, FileNotFoundError):
        words, hint = "command not found:", "check the spelling and PATH: hotloop run -- python train.py"
    elif isinstance(error, PermissionError):
        words, hint = "not executable:", f"name a program, or chmod +x {name}"
    else:
        words, hint = "cannot run", "a script begins with #! and the name of its interpreter"
        name += f": {error.strerror}"
    if path.suffix == ".py" or (path.is_file() and isinstance(error, FileNotFoundError)):
        hint = f"put the interpreter first: hotloop run -- python {path}"
    return UsageError(f"{words} {name}", hint=hint)


@dataclass(kw_only=True)
class _Wait:
    """Waiting for the command: ticks, signals, its end."""

    process: subprocess.Popen[bytes]
    signals: Signals
    on_tick: Callable[[int], None] | None
    orphans: Orphans | None = None
    code: int = 0
    end_ns: int = 0
    interrupted: bool = False
    warnings: list[str] = field(default_factory=list)
    _terminated: float = float("-inf")
    _group: GroupSentinel = field(default_factory=GroupSentinel)

    def until_over(self) -> None:
        next_tick = monotonic() + _TICK_S
        try:
            while not self._ended():
                number = self.signals.next(max(0.0, next_tick - monotonic()))
                if number in PASSED_ON:
                    self.interrupted = True
                    again = number == signal.SIGTERM and monotonic() - self._terminated < _AGAIN_S
                    if not again and not self._group.was_hit(number):
                        self.process.send_signal(number)
                    if number == signal.SIGTERM:
                        self._terminated = monotonic()
                if monotonic() >= next_tick:
                    self._tick()
                    next_tick = monotonic() + _TICK_S
            while number := self.signals.next(0.0):  # a whole group's may end the command before it is read
                self.interrupted |= number in PASSED_ON
            self._tick()
        finally:
            if self.orphans is not None:
                self.orphans.end(self._ours)
            self._group.close()

    @property
    def _ours(self) -> set[int]:
        return {self.process.pid, self._group.pid}

    def _ended(self) -> bool:
        code = self.process.poll()
        if code is not None:
            self.code, self.end_ns = code, perf_counter_ns()
        return code is not None

    def _tick(self) -> None:
        """Watching may break, the command goes on."""
        if self.orphans is not None:
            with suppress(Exception):  # looked at again, and once the command has ended
                self.orphans.left(self._ours)  # a script may wait for its daemon to be gone
        try:
            if self.on_tick is not None:
                self.on_tick(self.process.pid)
        except Exception as error:
            self.on_tick = None
            self.warnings.append(f"hotloop stopped watching the system: {type(error).__name__}: {error}")
