"""Launches as tasks of a Ray cluster: each has a node to itself, and what is compared runs on one node."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Final

from hotloop.errors import CheckFailed, UsageError
from hotloop.launch.guard import GRACE_S
from hotloop.tune.trial import Bench, Ran, Request

#: Within this a node becomes free, and a launch that was interrupted has ended.
_FREE_S: Final = 60.0
_ENDED_S: Final = 2 * GRACE_S
_GOES_ON: Final = "the same command goes on where it was, with --out"


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes that have most GPUs and of these most cores: a task that asks for all of one is alone there.

    ``run`` launches on the machine it is called on; folders must be the same on all.
    """

    run: Callable[[Request], Ran]
    count: int
    cores: float
    gpus: float

    @property
    def words(self) -> str:
        """What there is."""
        each = f"{self.cores:g} core{'s' * (self.cores > 1)}"
        each += f" and {self.gpus:g} GPU{'s' * (self.gpus > 1)}" * (self.gpus > 0)
        return f"launches on {self.count} node{'s' * (self.count > 1)} of Ray, {each} each"

    def beside(self, requests: Sequence[Sequence[Request]], left_s: float) -> list[list[Ran]]:
        """Each sequence on a node, one after the other, as far as it gets in so many seconds.

        Raises CheckFailed where Ray has no free node, or loses one.
        """
        import ray

        task = ray.remote(max_calls=1, max_retries=0, num_cpus=self.cores, num_gpus=self.gpus)(_launched)
        here = (str(Path.cwd()), dict(os.environ))
        tasks = [task.remote(self.run, list(lane), left_s, *here) for lane in requests]
        try:
            _, late = ray.wait(tasks, num_returns=len(tasks), timeout=left_s + _FREE_S)
            if late:
                raise CheckFailed("no node of the Ray cluster became free", hint=_GOES_ON)
            return list(ray.get(tasks))
        except ray.exceptions.RayError as error:
            raise CheckFailed(
                f"Ray could not launch a trial: {error}",
                hint="every node needs hotloop, the folder and --out under the same paths; "
                "the same command goes on where it was, with --out",
            ) from error
        finally:
            _, late = ray.wait(tasks, num_returns=len(tasks), timeout=0)  # those that ended stay uncancelled
            for one in late:
                ray.cancel(one)
            ray.wait(tasks, num_returns=len(tasks), timeout=_ENDED_S if late else 0)

    def alone(self, request: Request) -> Ran:
        """One launch on any of the nodes."""
        done = self.beside([[request]], request.timeout_s + GRACE_S)
        if not done[0]:
            raise CheckFailed("a launch on a node of Ray was ended", hint=_GOES_ON)
        return done[0][0]


@contextmanager
def nodes_of_ray(here: Bench) -> Iterator[Bench]:
    """A bench on the nodes of the cluster at hand, or of a local one that is started for it.

    Raises UsageError without Ray, or without a node that has cores.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError("Ray is not installed", hint="pip install 'hotloop[ray]'") from error
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")
    try:
        alive = [one["Resources"] for one in ray.nodes() if one["Alive"]]
        sizes = [(float(one.get("GPU", 0)), float(one.get("CPU", 0))) for one in alive]
        gpus, cores = max(sizes, default=(0.0, 0.0))
        if not cores:
            raise UsageError("the Ray cluster has no node with cores", hint="start one: ray start")
        nodes = Nodes(run=here.run, count=sizes.count((gpus, cores)), cores=cores, gpus=gpus)
        print(f"hotloop: {nodes.words}", file=sys.stderr, flush=True)
        yield replace(here, run=nodes.alone, nodes=nodes.count, beside=nodes.beside)
    finally:
        if started:
            ray.shutdown()


def _launched(
    run: Callable[[Request], Ran],
    requests: Sequence[Request],
    left_s: float,
    folder: str,
    environment: Mapping[str, str],
) -> list[Ran]:
    """On a node: what was asked for, in the folder and with the environment of whoever asks.

    Ray's own would set OMP_NUM_THREADS, and hide devices. The process ends after it.
    """
    until_s, found = monotonic() + left_s, []
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for request in requests:
        room_s = until_s - monotonic()
        if room_s <= 0:
            break
        ran = run(replace(request, timeout_s=min(request.timeout_s, room_s)))
        if ran.interrupted or (ran.ended_for and until_s <= monotonic()):
            break
        found.append(replace(ran, node=platform.node()))
    return found
