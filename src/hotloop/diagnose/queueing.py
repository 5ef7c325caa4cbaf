"""A DataLoader's queue, replayed: what each step waits for, given how long each batch took to make.

The mean rate hides what uneven batches do; this replay does not. It follows torch's dispatch: worker ``i %
W`` makes batch ``i``, at most ``prefetch * W`` batches are asked for ahead, and a new one is asked for when
one is taken.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Batches replayed at most: enough for a heavy tail, a few milliseconds of work.
MAX_BATCHES = 3000


def replay(make_s: Floats, busy_s: Floats, *, workers: int, prefetch: int, in_order: bool = True) -> Floats:
    """[n] seconds each step waits for its batch, the filling of the queue at the start left out.

    ``make_s`` and ``busy_s`` are [n]: seconds to make batch i and seconds step i works before it asks again.
    """
    count = min(len(make_s), len(busy_s), MAX_BATCHES)
    ahead = max(1, workers * prefetch)
    done = np.zeros(count)
    free = np.zeros(workers)
    taken = np.zeros(count)  # when batch i was taken: a batch ``ahead`` later is asked for then
    waits = np.zeros(count)
    now = 0.0
    waiting: list[float] = []
    asked = 0
    for step in range(count):
        while asked < min(count, step + ahead):
            worker = asked % workers
            start = max(free[worker], taken[asked - ahead] if asked >= ahead else 0.0)
            done[asked] = free[worker] = start + make_s[asked]
            waiting.append(done[asked])
            asked += 1
        ready = done[step] if in_order else waiting.pop(int(np.argmin(waiting)))
        waits[step] = max(0.0, ready - now)
        now = max(now, ready)
        taken[step] = now
        now += busy_s[step]
    return waits[min(ahead, count // 4) :]


def mean_wait(make_s: Floats, busy_s: Floats, *, workers: int, prefetch: int, in_order: bool = True) -> float:
    """Mean of ``replay``, 0 with nothing to replay."""
    waits = replay(make_s, busy_s, workers=workers, prefetch=prefetch, in_order=in_order)
    return float(waits.mean()) if len(waits) else 0.0


def stretched(values: Floats, count: int) -> Floats:
    """``count`` values: the first ones, repeated where there are fewer."""
    return np.resize(values, count) if len(values) else np.zeros(count)
