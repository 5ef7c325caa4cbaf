"""What a batch costs on its way from a worker to the training thread, by following every batch of a run.

Batch ``k`` of an epoch is the ``k // W``-th that worker ``k % W`` makes, and it is asked for when batch
``k - W x prefetch_factor`` is taken. So the times of MAKE and FETCH rows tell, for every batch, how long its
worker had nothing to do although it was asked, and how long it took from made to taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hotloop.measure.spans import Table, of_kind
from hotloop.model.pipeline import Floats
from hotloop.record import rows as row
from hotloop.record.recording import Process

#: Batches that must have shown it.
_LEAST = 5


@dataclass(frozen=True, kw_only=True)
class Handover:
    """Means in seconds, None where the run did not show them.

    ``ready_s``: a fetch whose batch was there. ``late_s``: from a batch made until the training thread, which
    waited, had it, ``late_first_s`` a worker's first. ``between_s``: from asked (or the batch before) until
    its worker began. ``wake_s``: from an iterator's start, that of workers in it, until a worker began.
    ``stop_s``: the fetch that ends an epoch, in which workers that are not persistent are shut down.
    ``first_s``: making the first batch of a worker in an epoch, ``later_s``: all others.
    """

    ready_s: float | None = None
    late_s: float | None = None
    late_first_s: float | None = None
    between_s: float | None = None
    wake_s: float | None = None
    stop_s: float | None = None
    first_s: float | None = None
    later_s: float | None = None


def handover(process: Process, loader: int, prefetch: int) -> Handover:
    """Follows the batches of one loader through all its epochs."""
    crews = {
        int(note["id"]): [int(pid) for pid in note.get("workers") or ()]
        for note in process.notes.get("iterator", ())
        if note.get("loader") == loader
    }
    origin = process.origin_ns
    made = {worker.pid: of_kind(worker, row.MAKE, origin=origin) for worker in process.workers}
    starts, fetches = of_kind(process, row.ITER), of_kind(process, row.FETCH)
    starts = starts.take(np.isin(starts.obj, list(crews)))
    fetches = fetches.take(np.isin(fetches.obj, list(crews)))
    ends = (fetches.flags & row.FETCH_END) != 0
    stop_s = _mean([fetches.duration[ends] / 1e9], 1)
    fetches = fetches.take(~ends)
    borders = np.append(starts.start, np.iinfo(np.int64).max)
    epochs = []
    for number, (begin, end) in enumerate(pairwise(borders.tolist())):
        crew = crews[int(starts.obj[number])]
        if crew and all(pid in made for pid in crew):
            makes = [its.take(its.began(begin, end)) for its in (made[pid] for pid in crew)]
            fetched = fetches.take(fetches.began(begin, end))
            epochs.append(_epoch(makes, fetched, int(starts.end[number]), prefetch))
    least = dict.fromkeys(epochs[0] if epochs else (), _LEAST) | {"wake_s": 1, "late_first_s": 1}
    means = {name: _mean([one[name] for one in epochs], num) for name, num in least.items()}
    return Handover(**means, stop_s=stop_s)


def _epoch(makes: list[Table], fetches: Table, started: int, prefetch: int) -> dict[str, Floats]:
    """The fields of ``Handover``, of every batch that shows them."""
    workers, num = len(makes), len(fetches)
    begun, done = np.full(num, np.nan), np.full(num, np.nan)
    for worker, its in enumerate(makes):
        count = min(len(its), len(range(worker, num, workers)))
        begun[worker::workers][:count] = its.start[:count]
        done[worker::workers][:count] = its.end[:count]
    ahead = workers * prefetch
    asked, before = np.full(num, float(started)), np.full(num, -np.inf)
    asked[ahead:] = fetches.end[: max(0, num - ahead)]
    before[workers:] = done[: max(0, num - workers)]
    first, late = np.arange(num) < workers, done > fetches.start
    return {
        "ready_s": fetches.duration[done < fetches.start] / 1e9,
        "late_s": (fetches.end - done)[late & ~first] / 1e9,
        "late_first_s": (fetches.end - done)[late & first] / 1e9,
        "between_s": (begun - np.maximum(asked, before))[~first] / 1e9,
        "wake_s": (begun - started)[first] / 1e9,
        "first_s": np.concatenate([its.duration[:1] for its in makes]) / 1e9,
        "later_s": np.concatenate([its.duration[1:] for its in makes]) / 1e9,
    }


def _mean(parts: list[Floats], least: int) -> float | None:
    values = np.concatenate(parts) if parts else np.zeros(0)
    values = values[np.isfinite(values)]
    return float(max(0.0, values.mean())) if len(values) >= least else None
