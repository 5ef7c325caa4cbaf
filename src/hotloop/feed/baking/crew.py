"""Parts written by worker processes, each of which is a sample of a loader."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch

from hotloop.feed.baking import folder as folders
from hotloop.feed.baking.manifest import Manifest
from hotloop.feed.baking.part import SampleError, write_part
from hotloop.feed.errors import BakeError, WorkerError
from hotloop.feed.loader import Loader
from hotloop.feed.reading import as_it_is

Advance = Callable[[int], None]


def write_parts(
    folder: Path,
    manifest: Manifest,
    dataset: Any,
    parts: list[int],
    *,
    num_workers: int,
    context: Any,
    advance: Advance,
) -> None:
    """Write ``parts`` with ``num_workers`` processes (0: in this one); ``advance(n)`` follows the samples.

    Raises:
        BakeError: a sample raised, the disk is full, or a worker was killed.
    """
    written = _written(_Parts(folder, manifest, dataset), parts, num_workers, context)
    try:
        with contextlib.closing(written):
            for part, failure in written:
                if failure is not None:
                    raise BakeError(failure[0], hint=failure[1])
                advance(len(manifest.samples(part)))
    except WorkerError as error:
        raise BakeError(
            f"a worker was lost: {error.message}",
            hint="finished parts are kept: run it again, with fewer workers if memory is short",
        ) from error


def _written(parts: _Parts, numbers: list[int], num_workers: int, context: Any) -> Generator[Any, None, None]:
    """The parts of these numbers, written: number and failure, as they come."""
    if num_workers == 0:
        yield from (parts[number] for number in numbers)
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        loader = Loader(
            parts,
            batch_size=None,
            sampler=numbers,
            num_workers=min(num_workers, len(numbers)),
            collate_fn=as_it_is,
            generator=torch.Generator(),  # or the loader would draw from the user's
            prefetch_factor=1,
            in_order=False,
            multiprocessing_context=context,
        )
        iterator = iter(loader)
    try:
        yield from iterator
    finally:
        iterator.stop()


class _Parts:
    """Writes a part where its number is asked for."""

    def __init__(self, folder: Path, manifest: Manifest, dataset: Any) -> None:
        self._of = folder, manifest, dataset

    def __len__(self) -> int:
        return self._of[1].num_parts

    def __getitem__(self, part: int) -> tuple[int, tuple[str, str | None] | None]:
        return part, failure_of(*self._of, part)


def failure_of(folder: Path, manifest: Manifest, dataset: Any, part: int) -> tuple[str, str | None] | None:
    """Write a part; the words and the hint of what went wrong, which cross any process boundary."""
    try:
        write_part(folder, manifest, dataset, part)
    except SampleError as error:
        trace = "".join(traceback.format_exception(error.__cause__ or error)).rstrip()
        return (
            f"sample {error.index} (part {part}) could not be baked:\n{trace}",
            "finished parts are kept: once the sample can be read, run the same bake again",
        )
    except OSError as error:
        if folders.is_no_space(error):
            full = folders.no_space(folder, f"it ran full while part {part} was written")
            return full.message, full.hint
        return f"part {part} could not be written to {folder}: {error}", None
    return None
