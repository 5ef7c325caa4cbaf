"""The guard goes on where samples are made: the first of each process are watched for random draws.

The guard before a cache reads a few samples. One that is augmented only now and then (a rare class, a corrupt
file replaced by another) may not be among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hotloop.feed import randomness
from hotloop.feed.determinism import Verdict, check_deterministic

#: Reads watched in each process; each costs about 0.2 ms.
WATCHED_READS = 256
#: What a read that moved the generators and was found deterministic (it seeds them) costs of these.
PRICE_OF_A_CHECK = 64


class DrawWatch:
    """Finds samples of ``dataset`` that are random though those looked at before were not.

    Only in the main thread of a process: beside it others may draw meanwhile, such as the model.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._left = WATCHED_READS

    @contextmanager
    def reading(self, indices: Sequence[int], refuse: Callable[[int, Verdict], None]) -> Iterator[None]:
        """Around a read of these samples; ``refuse`` is told the first that reads differently again."""
        if self._left <= 0 or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._left -= len(indices)
        before = randomness.tokens()
        yield
        if randomness.tokens() == before:
            return
        self._left -= PRICE_OF_A_CHECK
        for index in indices:
            verdict = check_deterministic(self._dataset, [index])
            if not verdict:
                refuse(index, verdict)
                return
