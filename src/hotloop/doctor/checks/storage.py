"""Where the data is: kind of storage, free space, measured random reads."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hotloop import foreign
from hotloop.doctor.line import Line, Patient, State, judged
from hotloop.units import rate, size

#: One read: about an image, and a multiple of every block size.
READ_BYTES = 128 << 10
_MOST_FILES = 2000
_SECONDS = 1.5

_KINDS = {
    "network": "Read over the network for every sample; copy the data to a local disk, or bake or cache it.",
    "rotational": "A spinning disk gives about a hundred random reads a second; copy the data to an SSD, "
    "or read it in large sequential pieces (hotloop bake).",
}


def check(patient: Patient) -> Iterator[Line]:
    """What the data folder is on and what it gives to one reader."""
    facts = patient.machine.get("storage") or {}
    kind = str(facts.get("kind") or "unknown")
    value = f"{patient.data}: {kind}" + (f", {facts['filesystem']}" if facts.get("filesystem") else "")
    advice = _KINDS.get(kind, "")
    state: State = "warn" if advice else "unknown" if kind == "unknown" else "ok"
    yield Line(topic="storage", name="data", value=value, state=state, advice=advice, data=dict(facts))
    free = facts.get("free_bytes")
    if free is not None:
        advice = "Checkpoints and logs need room: a full disk ends the run at its next checkpoint."
        yield judged("storage", "free space", size(free), advice if free < 5 << 30 else "")
    if not patient.quick:
        yield _reads(patient)


def _reads(patient: Patient) -> Line:
    name = f"random reads of {size(READ_BYTES)}"
    num_reads, seconds = random_reads(files_in(patient.data))
    if not num_reads:
        words = "not measured: no file there is that large (give the data's folder with --data)"
        return Line(topic="storage", name=name, value=words, state="unknown")
    per_s = num_reads / seconds
    advice = "One worker waits for every sample: use many workers, copy the data to a local disk, or bake it."
    value = f"{rate(per_s)}/s, {size(per_s * READ_BYTES)}/s for one reader"
    data = {"num_reads": num_reads, "reads_per_s": per_s, "bytes_per_s": per_s * READ_BYTES}
    return judged("storage", name, value, advice if per_s < 200 else "", data=data)


def files_in(folder: Path) -> list[Path]:
    """Some of the files below a folder that hold at least one read."""
    found: list[Path] = []
    for root, folders, names in foreign.walk(folder):
        folders.sort()
        for path in (Path(root, name) for name in sorted(names)):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and path.stat().st_size >= READ_BYTES:
                    found.append(path)
            if len(found) >= _MOST_FILES:
                return found
    return found


def random_reads(files: Sequence[Path], *, seconds: float = _SECONDS) -> tuple[int, float]:
    """How many single reads at random places of random files, and their seconds; as one worker does them.

    What the page cache held of it is dropped first, where the filesystem does that.
    """
    chosen = random.Random(0)
    count, spent = 0, 0.0
    until = time.perf_counter() + seconds
    while files and time.perf_counter() < until:
        path = chosen.choice(files)
        start = time.perf_counter()
        try:
            with path.open("rb", buffering=0) as file:
                offset = chosen.randrange(os.fstat(file.fileno()).st_size // READ_BYTES) * READ_BYTES
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), offset, READ_BYTES, os.POSIX_FADV_DONTNEED)
                os.pread(file.fileno(), READ_BYTES, offset)
        except (OSError, ValueError):
            files = [one for one in files if one != path]
            continue
        spent += time.perf_counter() - start
        count += 1
    return count, spent
