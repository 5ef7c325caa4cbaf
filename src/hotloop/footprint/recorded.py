"""A dataset as a measured run shows it: what a sample takes, and who makes it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.footprint.stages import Dataset, Stage
from hotloop.measure.steps import LoaderUse, Steps
from hotloop.record.recording import Recording

#: Reads below this per sample are metadata and pipes; a worker reads about so much besides, for imports.
_MIN_READ_BYTES = 1024
_OWN_READ_BYTES = 2**20


def dataset(recording: Recording, steps: Steps | None) -> Dataset | None:
    """The training dataset of the rank that was measured, None where no loader drives training."""
    loader = steps.train_loader() if steps is not None else None
    if steps is None or loader is None:
        return None
    known = steps.samples[np.isfinite(steps.samples)]
    batch = int(np.median(known)) if len(known) else int(loader.settings.get("batch_size") or 0)
    return Dataset(
        stages=tuple(_stages(loader, batch)),
        num_samples=int(loader.dataset.get("len") or 0),
        num_workers=int(loader.settings.get("num_workers") or 0),
        num_ranks=len(recording.ranks),
        batch_size=batch or 1,
        prefetch_factor=int(loader.settings.get("prefetch_factor") or 2),
        held_bytes=float(loader.dataset.get("bytes") or 0),
    )


def _stages(loader: LoaderUse, batch: int) -> Iterator[Stage]:
    read = loader.worker_stats.get("rchar_bytes", 0.0) - loader.num_worker_processes * _OWN_READ_BYTES
    fetched = loader.num_batches * batch
    if fetched and read / fetched >= _MIN_READ_BYTES:
        yield Stage(name="read from files", sample_bytes=read / fetched)
    if batch and loader.batch_bytes:
        shapes = [(one.get("dtype"), one.get("shape") or ()) for one in loader.batch_fields]
        fields = (f"{kind}[{','.join(map(str, of[1:]))}]" for kind, of in shapes if of and of[0] == batch)
        yield Stage(name="in the batch", sample_bytes=loader.batch_bytes / batch, fields=tuple(fields))
