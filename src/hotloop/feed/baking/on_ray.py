"""The parts of a bake as Ray tasks: the same bytes, written by whatever machines the cluster has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotloop.feed.baking.crew import failure_of
from hotloop.feed.baking.manifest import Manifest
from hotloop.feed.errors import BakeError


def write_parts_on_ray(
    folder: Path,
    manifest: Manifest,
    dataset: Any,
    parts: list[int],
    *,
    most: int,
    advance: Callable[[int], None],
) -> None:
    """Write ``parts`` as tasks of the Ray cluster at hand, or of a local one that is started for it.

    At most ``most`` run at once (0: as many as the cluster takes). ``folder`` must be the same on every
    machine. A task that dies with its machine is run again by Ray; every part can be written again.

    Raises:
        BakeError: Ray is not installed, a sample raised, or the disk is full.
    """
    try:
        import ray
    except ImportError as error:
        raise BakeError("Ray is not installed", hint="pip install 'hotloop[ray]'") from error
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        shared = ray.put(dataset)
        task = ray.remote(failure_of).options(max_retries=2)
        waiting = parts[::-1]
        running: dict[Any, int] = {}
        while waiting or running:
            while waiting and (most == 0 or len(running) < most):
                part = waiting.pop()
                running[task.remote(folder, manifest, shared, part)] = part
            ready, _ = ray.wait(list(running), num_returns=1)
            for reference in ready:
                part = running.pop(reference)
                if failure := ray.get(reference):
                    raise BakeError(failure[0], hint=failure[1])
                advance(len(manifest.samples(part)))
    except ray.exceptions.RayError as error:
        raise BakeError(
            f"Ray could not run the bake: {error}",
            hint="finished parts are kept; every machine must be able to import the dataset's module",
        ) from error
    finally:
        if started:
            ray.shutdown()
