"""The user's command as a child process that cannot tell the difference: its streams, signals and exit code
are its own.

Signals. The command is in hotloop's process group: a Ctrl-C at the terminal, or a signal sent to the group,
reaches it directly, and hotloop goes on waiting. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 sent
to hotloop alone are passed on, so that the command gets each signal once; a second SIGTERM within a second is
the first again. The exit code is the command's; a command killed by signal n gives 128 + n, as a shell says
it (hotloop does not kill itself with the same signal: it has a report to write).
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter_ns, sleep, time
from typing import IO, Any, Final, Self

from hotloop.errors import UsageError
from hotloop.launch.guard import end
from hotloop.launch.system import children

_TICK_S: Final = 0.5
#: A second SIGTERM this close to the first is the same: it would end a command that is saving by its first.
_AGAIN_S: Final = 1.0

#: Set for every run; what an outer hotloop set does not leak into an inner one.
_OURS: Final = frozenset(
    f"HOTLOOP_{name}"
    for name in ("RAW", "SRC", "STEPS", "UNTIL", "PROFILE", "MEMORY", "APPLY", "PATCH", "WHAT_IF", "DRAWS")
)


#: Passed on to the command. Batch systems announce the end of a job with SIGUSR1 or SIGUSR2.
PASSED_ON: Final = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
#: How long the kernel may take to end the silent process.
_SILENT_S: Final = 0.1


class Signals:
    """Catches ``PASSED_ON`` and SIGCHLD inside of a ``with``; of the main thread.

    Caught, not blocked: a blocked signal goes to any thread of a library that does not block it. What was
    ignored when hotloop started (``nohup``) stays ignored.
    """

    def __enter__(self) -> Self:
        self._waiting: deque[int] = deque()
        self._pipe = os.pipe()
        for one in self._pipe:
            os.set_blocking(one, False)
        self._fd_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._before: dict[int, Any] = {}
        for number in (signal.SIGCHLD, *PASSED_ON):
            handler = signal.getsignal(number)
            if number == signal.SIGCHLD or handler not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, lambda *_: None)  # it is in the pipe
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        for one in self._pipe:
            os.close(one)

    def next(self, timeout_s: float) -> int:
        """The next signal, 0 when none came. The same one sent many times at once is one."""
        if not self._waiting and select.select([self._pipe[0]], [], [], timeout_s)[0]:
            with suppress(BlockingIOError):
                self._waiting.extend(dict.fromkeys(os.read(self._pipe[0], 65536)))
        return self._waiting.popleft() if self._waiting else 0


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
            return self._process.wait(_SILENT_S) == -number
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
    if environment.get("HOTLOOP_EVIDENCE", "0") != "0":  # what has no seed of its own could not be compared
        seed = environment.setdefault("HOTLOOP_SEED", "0")
        if not seed.isdecimal() or int(seed) >= 2**16:
            raise UsageError(f"HOTLOOP_SEED is {seed!r}", hint="a whole number from 0 to 65535")
        environment.setdefault("PYTHONHASHSEED", seed)
    sys.stdout.flush()
    sys.stderr.flush()
    with Signals() as signals, Orphans() if leave_none else nullcontext() as orphans:
        start_unix_s, start_ns = time(), perf_counter_ns()
        if prefix and shutil.which(command[0], path=environment.get("PATH")) is None:
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


_PR_SET_CHILD_SUBREAPER: Final = 36
#: What cleans up after the command, such as multiprocessing's resource tracker, may take so long; killed
#: processes have gone within the second.
_GRACE_S: Final = 1.0
_GONE_WITHIN_S: Final = 5.0


class Orphans:
    """Inside of its ``with`` hotloop is the parent of whatever loses its own, on Linux: a run whose writes
    are thrown away, and a trial, leave no daemon behind. A namespace of processes would do as well, and give
    every process another pid than samples and raw files name it by.
    """

    def __enter__(self) -> Self:
        self._ours = {*children(os.getpid())}
        self._adopts = sys.platform == "linux" and not _adopt(1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._adopts:
            _adopt(0)

    def left(self, ours: Iterable[int]) -> list[int]:
        """The adopted that live; of those that ended nothing stays. ``ours``: children of hotloop itself."""
        if not self._adopts:
            return []
        found = [pid for pid in children(os.getpid()) if pid not in self._ours and pid not in ours]
        return [pid for pid in found if not _ended(pid)]

    def end(self, ours: Iterable[int]) -> None:
        """End them and all below them, those last that end by themselves."""
        begin = monotonic()
        while (left := self.left(ours)) and monotonic() - begin < _GONE_WITHIN_S:
            for pid in left if monotonic() - begin > _GRACE_S else ():
                end(pid)
            sleep(0.01)


def _adopt(whether: int) -> int:
    return int(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, whether, 0, 0, 0))


def _ended(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


#: torchrun ends with an error of its own and a table, whatever a rank raised before.
_OF_TORCHRUN: Final = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_RAISED: Final = re.compile(r"(?:^|[\s.])\w*(?:Error|Exception|Interrupt|Exit): \S")
#: What a traceback in the end says was raised, in its first line: a few more are hints.
_TRACED: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)(?:\n(?!.*Traceback \(most).*){0,6}\Z"
)
_MOST: Final = 200


def last_words(output: str) -> str:
    """What a traceback in the end says was raised, else the last line that says something.

    Where torchrun tells of it, what a rank raised.
    """
    own, launched, _ = output.partition(_OF_TORCHRUN)
    said = [line.strip() for line in own.splitlines() if any(letter.isalnum() for letter in line)]
    raised = [line for line in said if _RAISED.search(line)] if launched else []
    traced = _TRACED.search(own) if not launched else None
    if traced:
        return traced[1].strip()[:_MOST]
    return next(iter([*raised[-1:], *said[-1:]]), "")[:_MOST]
