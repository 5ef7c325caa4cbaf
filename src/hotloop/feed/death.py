"""Why a worker is gone, or says nothing: the sample it was reading, and the cause."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable
from typing import Any

from hotloop import cgroups
from hotloop.feed.errors import WorkerError
from hotloop.feed.ring import COLLATING, FETCHING, STARTING


def explain(member: Any, tasks: Iterable[Any], progress: Any, oom_kills: int) -> WorkerError:
    """The error for a worker whose process is gone. ``oom_kills``: :func:`count_oom_kills` before."""
    member.process.join(5.0)
    code = member.process.exitcode
    hint = None
    if code is None:
        cause = "closed its pipe"
    elif code >= 0:
        cause = f"exited unexpectedly with code {code}"
        hint = "the dataset, collate_fn or worker_init_fn ended the process (os._exit, sys.exit)"
    else:
        cause = f"was killed by {_name(-code)}"
        if code == -signal.SIGKILL:
            if count_oom_kills() > oom_kills:
                cause += ": the kernel's out-of-memory killer of this control group"
                hint = "lower num_workers, prefetch_factor or batch_size, or give the job more memory"
            else:
                hint = "somebody sent it, or the machine ran out of memory (see dmesg)"
        elif code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT):
            hint = "native code in the dataset crashed; run with num_workers=0 and python -X faulthandler"
    by_number = {task.number: task for task in tasks}
    doing = place_of(member.number, by_number, progress)
    error = WorkerError(
        f"DataLoader worker {member.number} (pid {member.pid}) {cause} while {doing}", hint=hint
    )
    task = by_number.get(progress[1 + 2 * member.number])
    error.index = None if task is None or task.reply is not None else task.index
    return error


def timed_out(timeout: float, member: Any, tasks: dict[int, Any], progress: Any) -> WorkerError:
    """The error for a batch that did not come from ``member`` within ``timeout`` seconds."""
    doing = place_of(member.number, tasks, progress)
    return WorkerError(
        f"DataLoader timed out after {timeout} seconds: "
        f"worker {member.number} (pid {member.pid}) was {doing}",
        hint="raise timeout if that is slow by nature; py-spy dump --pid shows where a worker stands",
    )


def not_started(number: int, error: OSError) -> WorkerError:
    """The error for a worker that could not be started."""
    hint = None
    if error.errno in (errno.EMFILE, errno.ENFILE):
        hint = "a worker takes four descriptors: raise the limit (ulimit -n) or lower num_workers"
    elif error.errno in (errno.EAGAIN, errno.ENOMEM):
        hint = (
            "raise the limit on processes (ulimit -u, the cgroup's pids.max) or memory, or lower num_workers"
        )
    return WorkerError(f"worker {number} could not be started: {error}", hint=hint)


def place_of(worker: int, tasks: dict[int, Any], progress: Any) -> str:
    """What a worker was busy with, in words."""
    task, place = progress[1 + 2 * worker], progress[2 + 2 * worker]
    if place == STARTING:
        return "starting (worker_init_fn or unpickling the dataset)"
    if place == COLLATING:
        return f"collating batch {task}"
    if place == FETCHING:
        return f"fetching batch {task}{_samples(tasks.get(task))}"
    if place >= 0:
        try:
            return f"reading sample {tasks[task].index[place]!r} (number {place} of batch {task})"
        except (KeyError, IndexError, TypeError):
            return f"reading sample number {place} of batch {task}"
    return "waiting for work"


def _samples(task: Any) -> str:
    if task is None:
        return ""
    text = repr(task.index)
    return f" (samples {text if len(text) <= 200 else text[:200] + '...'})"


def count_oom_kills() -> int:
    """How many processes of this control group the kernel has killed for memory; 0 where it does not say."""
    return cgroups.oom_kills() or 0


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
