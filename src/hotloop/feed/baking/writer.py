"""``bake``: read every sample of a dataset once, and keep it where reading it again costs a copy."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from hotloop.feed.baking import folder as folders
from hotloop.feed.baking import manifest as manifests
from hotloop.feed.baking.baked import Baked, Verify, stale
from hotloop.feed.baking.crew import Advance, Note, failure_of, finished, write_parts
from hotloop.feed.baking.manifest import Manifest
from hotloop.feed.baking.schema import Schema, infer, split
from hotloop.feed.budget import usable_cores
from hotloop.feed.determinism import check_deterministic, spread
from hotloop.feed.errors import BakeError, StaleBakeError
from hotloop.feed.identity import fingerprint as fingerprints
from hotloop.feed.identity.fingerprint import Fingerprint
from hotloop.feed.layout import Encoded, encode

#: Samples read ahead: their layouts make the schema.
PROBED_SAMPLES = 8
#: A part is about this large, there are this many where the dataset has as many samples, and never more than
#: the last number: a reader maps a file for each.
PART_BYTES = 64 << 20
LEAST_PARTS = 32
MOST_PARTS = 8192


def bake(
    dataset: Any,
    out: str | os.PathLike[str],
    *,
    num_workers: int | Literal["auto"] = "auto",
    source: Iterable[str | os.PathLike[str]] | None = None,
    overwrite: bool = False,
    verify: Verify = "lazy",
    multiprocessing_context: Any = None,
    ray: bool = False,
    progress: bool = True,
) -> Baked:
    """Write every sample of a map-style dataset to memory-mapped files in ``out`` and open them.

    Killed at any moment and run again, it goes on where it was. If ``out`` already holds this dataset, it is
    only opened.

    Args:
        dataset: has ``__len__`` and ``__getitem__``; gives the same sample every time.
        out: the folder to make; it is built beside, as ``out.partial``.
        num_workers: processes that read samples; 0 reads them here; "auto" takes all usable cores.
        source: the files and folders the samples come from; by default the dataset's own parameters tell.
        overwrite: replace a bake that is there, and forget one that was begun.
        verify: how the result is opened, see :class:`Baked`.
        multiprocessing_context: start method or context of the workers, as for torch's DataLoader.
        ray: run the parts as Ray tasks (``pip install hotloop[ray]``); ``out`` must be on a file system that
            all machines share. A number of ``num_workers`` then is the most that run at once.
        progress: a line of progress on standard error for what takes over two seconds.

    Raises:
        BakeError: the samples are random, one cannot be read, the dataset changed meanwhile, the disk is
            full, or ``out`` is something else.
        StaleBakeError: ``out`` holds a bake of this dataset as it was before something changed.
    """
    num_tasks = 0 if num_workers == "auto" else num_workers  # Ray knows its machines
    num_workers = _workers(num_workers)
    _require_map_style(dataset)
    path = Path(out).resolve()
    fingerprint = fingerprints.take(dataset, source=source, beside=path)

    def existing() -> Baked | None:
        return None if overwrite else _existing(path, fingerprint, verify)

    # With its builder's note still there, it was killed at the very end: what is left is tidied up below.
    if not (path / folders.JOB).exists() and (found := existing()) is not None:
        return found
    if path.exists() and not _is_ours(path):  # but for a bake, good or not, nothing is ever replaced
        raise BakeError(f"{path} is there and is not a bake", hint="choose another path; it is left as it is")
    waits = f"hotloop: another process bakes {path}; waiting for it"
    with folders.building(path, on_wait=lambda: print(waits, file=sys.stderr, flush=True)) as folder:
        folders.tidy(folder, path)
        if (found := existing()) is not None:  # the other one has finished it
            return found
        manifest, kept = _begin(folder, path, dataset, fingerprint, overwrite)
        missing = [part for part in range(manifest.num_parts) if part not in kept]
        done = sum(len(manifest.samples(part)) for part in kept)
        with progress_line(f"baking {path.name}", manifest.num_samples, done, progress) as advance:
            if ray:
                write_parts_on_ray(folder, manifest, dataset, missing, most=num_tasks, advance=advance)
            else:
                write_parts(
                    folder,
                    manifest,
                    dataset,
                    missing,
                    num_workers=num_workers,
                    context=multiprocessing_context,
                    advance=advance,
                )
        _require_unchanged(dataset, manifest, path, read_here=num_workers == 0 and not ray)
        _complete(folder, manifest)
        folders.publish(folder, path)
    baked = Baked(path, verify=verify, trust=True)
    baked.num_kept = len(kept)
    return baked


def _workers(num_workers: int | Literal["auto"]) -> int:
    if num_workers == "auto":
        return max(1, math.floor(usable_cores()))
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
        raise ValueError(f'num_workers must be "auto" or a number from 0 on, not {num_workers!r}')
    return num_workers


def _require_map_style(dataset: Any) -> None:
    for method in ("__len__", "__getitem__"):
        if not hasattr(type(dataset), method):
            raise BakeError(
                f"{type(dataset).__name__} has no {method}: only map-style datasets can be baked",
                hint="an iterable dataset has no indices: put its samples in a list",
            )
    try:
        len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise BakeError(f"{type(dataset).__name__} has no length: {error}") from error


def _is_ours(out: Path) -> bool:
    try:
        names = {path.name for path in out.iterdir()}
        return (
            not names or manifests.CHECKSUMS in names or "hotloop_bake" in (out / manifests.FILE).read_text()
        )
    except (OSError, UnicodeDecodeError):
        return False


def _existing(out: Path, fingerprint: Fingerprint, verify: Verify) -> Baked | None:
    """The bake that is there, if it is one and still that of the dataset."""
    if not (out / manifests.FILE).is_file():
        return None
    baked = Baked(out, verify=verify, trust=True)
    changed = fingerprints.changes(baked.manifest.fingerprint, fingerprint)
    if changed:
        raise stale(out, changed)
    baked.num_kept = baked.manifest.num_parts
    return baked


def _begin(
    folder: Path, out: Path, dataset: Any, fingerprint: Fingerprint, overwrite: bool
) -> tuple[Manifest, dict[int, Note]]:
    """The manifest to work from and the parts that are whole: of the job that was begun, or of a new one."""
    begun = None
    if overwrite:
        folders.empty(folder)
    with contextlib.suppress(BakeError):
        begun = manifests.read(folder, folders.JOB, trust=True)
    if begun is None:
        folders.empty(folder)
        return _new(folder, out, dataset, fingerprint), {}
    changed = fingerprints.changes(begun.fingerprint, fingerprint)
    if changed:
        raise StaleBakeError(
            f"{folder} holds an unfinished bake of a dataset that has changed since: " + "; ".join(changed),
            hint="bake with overwrite=True (hotloop bake --overwrite) to begin again",
        )
    kept = finished(folder, begun)
    missing = begun.num_samples - sum(len(begun.samples(part)) for part in kept)
    samples = [encode(dataset[index]) for index in spread(dataset, PROBED_SAMPLES)]
    folders.allocate(folder, begun, _record_bytes(begun.schema, samples) * missing)
    return begun, kept


def _new(folder: Path, out: Path, dataset: Any, fingerprint: Fingerprint) -> Manifest:
    samples = _probe(dataset)
    after = fingerprints.take(dataset, source=fingerprint.source, beside=out)
    schema = infer(samples)
    manifest = Manifest(
        num_samples=fingerprint.num_samples,
        part_samples=1,
        schema=schema,
        fingerprint=fingerprints.settled(fingerprint, after),
        versions={"torch": torch.__version__, "numpy": np.__version__},
    )
    record_bytes = _record_bytes(schema, samples)
    num, by_size = manifest.num_samples, int(PART_BYTES / max(schema.row_bytes + record_bytes, 1))
    part_samples = max(1, min(by_size, -(-num // LEAST_PARTS)), -(-num // MOST_PARTS))
    manifest = dataclasses.replace(manifest, part_samples=part_samples)
    folders.allocate(folder, manifest, record_bytes * manifest.num_samples)
    (folder / folders.NOTES).mkdir()
    folders.write_atomic(folder / folders.JOB, manifests.dumps(manifest).encode())
    return manifest


def _probe(dataset: Any) -> list[Encoded]:
    """A few samples, read after the guard found that they are the same every time."""
    if not len(dataset):
        return []
    try:
        verdict = check_deterministic(dataset)
        samples = [encode(dataset[index]) for index in spread(dataset, PROBED_SAMPLES)]
    except Exception as error:
        raise BakeError(f"a sample cannot be read: {type(error).__name__}: {error}") from error
    if not verdict:
        raise BakeError(
            f"the samples are not the same every time they are read: {verdict}",
            hint="bake what comes before the random transforms, and apply those to what Baked gives",
        )
    return samples


def _record_bytes(schema: Schema, samples: list[Encoded]) -> float:
    """What the record of a sample comes to, on the mean."""
    return sum(len(split(schema, sample).record) for sample in samples) / max(1, len(samples))


def _require_unchanged(dataset: Any, manifest: Manifest, out: Path, *, read_here: bool) -> None:
    """The dataset is still what it was at the start; else what was written is a mixture."""
    then = manifest.fingerprint
    now = fingerprints.take(dataset, source=then.source, beside=out)
    if read_here:  # counters and caches that reading changed, in this process and not in a worker's copy
        now = dataclasses.replace(now, parameters=then.parameters)
    changed = fingerprints.changes(then, now)
    if changed:
        raise StaleBakeError(
            f"the dataset changed while it was baked, {out} is not published: " + "; ".join(changed),
            hint="let nothing write to it and bake with overwrite=True (--overwrite); if a file named "
            "here is no source of the samples, name those that are with source= (--source)",
        )


def _complete(folder: Path, manifest: Manifest) -> None:
    """Gather the parts' notes into the manifest and the checksums; remove what only the job needed."""
    notes = finished(folder, manifest)
    missing = [part for part in range(manifest.num_parts) if part not in notes]
    if missing:
        raise BakeError(f"parts {missing[:5]} of {folder} have vanished", hint="run the same bake again")
    ordered = [notes[part] for part in range(manifest.num_parts)]
    record_bytes = tuple(note.record_bytes for note in ordered)
    manifest = dataclasses.replace(manifest, record_bytes=record_bytes)
    data = bytes.fromhex("".join(note.crcs for note in ordered))
    if not manifest.has_records:
        (folder / manifests.ENDS).unlink(missing_ok=True)
    for path in folder.glob("**/*.tmp"):
        path.unlink()
    folders.write_atomic(folder / manifests.CHECKSUMS, data)
    manifest = dataclasses.replace(manifest, checksums_crc=zlib.crc32(data))
    folders.write_atomic(folder / manifests.FILE, manifests.dumps(manifest).encode())


#: Work that is shorter shows no line; it is written again this often.
PATIENCE_S = 2.0
_EVERY_S = 0.5


@contextlib.contextmanager
def progress_line(words: str, total: int, done: int, wanted: bool) -> Iterator[Advance]:
    """Gives a function to call with the number of samples that were added; none where no terminal looks."""
    begun, next_at = done, time.monotonic() + PATIENCE_S
    start = time.monotonic()
    shown = False

    def advance(count: int) -> None:
        nonlocal done, next_at, shown
        done += count
        now = time.monotonic()
        if wanted and now >= next_at and sys.stderr.isatty():
            left_s = (total - done) * (now - start) / max(1, done - begun)
            sys.stderr.write(f"\r{words}: {done:,} of {total:,} samples, {left_s:,.0f} s left \x1b[K")
            sys.stderr.flush()
            next_at, shown = now + _EVERY_S, True

    try:
        yield advance
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")


# As Ray tasks: the same bytes, written by whatever machines the cluster has


def write_parts_on_ray(
    folder: Path,
    manifest: Manifest,
    dataset: Any,
    parts: list[int],
    *,
    most: int,
    advance: Advance,
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
