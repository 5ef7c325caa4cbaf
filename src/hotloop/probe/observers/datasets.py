"""What changes in datasets: between two passes over a loader, and within a pass.

A few looks at the first passes, and at fewer of the later ones. What samples write by themselves is among the
names that are noted: the text of the dataset's class tells it from the rest (``source.stateful``).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, Final

from hotloop.probe.observers.loader_facts import own_dataset
from hotloop.state.identity import Known
from hotloop.state.snapshot import Snapshot, changed, snapshot

#: Passes over a dataset that are looked at, and over all of the loaders that one line builds; later those
#: that are powers of two.
_FIRST: Final = 4
_FIRST_OF_PLACE: Final = 64
#: Passes under way, of as many loaders, whose datasets are remembered as they began.
_MOST_BEGUN: Final = 64


class Datasets:
    """Compares what the datasets of loaders hold; one per process. ``place`` is where a loader was built.

    ``note`` writes a note; ``seen`` is given the files whose text says what samples do with what changed.
    """

    def __init__(self, note: Callable[..., None], seen: Callable[[str], None]) -> None:
        self._write, self._seen = note, seen
        self.restart()

    def restart(self) -> None:
        """In a forked child: what its parent saw is not its own."""
        self._passes: dict[Any, int] = {}  # by place
        #: by place: passes over a dataset, and how it was when one began
        self._latest: dict[Any, Known[tuple[int, Snapshot | None]]] = {}
        #: by loader: the dataset, and how it was when the pass under way began
        self._begun: dict[int, tuple[weakref.ref[Any], Snapshot]] = {}
        self._noted: dict[tuple[str, int], dict[str, None]] = {}

    def begins(self, loader: Any, number: int, place: Any) -> None:
        """A pass begins."""
        self._begun.pop(number, None)
        of_place = self._passes[place] = self._passes.get(place, 0) + 1
        dataset = own_dataset(getattr(loader, "dataset", None))
        known = self._latest.get(place) or self._latest.setdefault(place, Known())
        passes, before = known.get(dataset) or (0, None)
        count = passes + 1 if of_place <= _FIRST_OF_PLACE or before is not None else of_place
        if (count > _FIRST or of_place > _FIRST_OF_PLACE) and count & (count - 1):
            known.put(dataset, (passes + 1, before))
            return
        now = snapshot(dataset)
        if before is not None:
            self._note("dataset_changed", number, dataset, before, now)
        known.put(dataset, (passes + 1, now))
        try:
            self._begun[number] = weakref.ref(dataset), now
        except TypeError:  # nothing can refer to it weakly
            return
        if len(self._begun) > _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]

    def passed(self, number: int) -> None:
        """A pass was gone through to its end."""
        begun = self._begun.pop(number, None)
        dataset = begun[0]() if begun is not None else None
        if begun is not None and dataset is not None:
            self._note("dataset_written", number, dataset, begun[1], snapshot(dataset))

    def written(self, number: int) -> list[str]:
        """What of a loader's dataset changed within a pass."""
        return list(self._noted.get(("dataset_written", number), ()))

    def _note(self, kind: str, number: int, dataset: Any, before: Snapshot, now: Snapshot) -> None:
        noted = self._noted.setdefault((kind, number), {})
        names = [name for name in changed(before, now) if name not in noted]
        if names:
            noted.update(dict.fromkeys(names))
            self._write(kind, loader=number, names=names)
            classes = {kind for one in (dataset, *now.objects()) for kind in type(one).__mro__}
            for module in {kind.__module__ for kind in classes}:
                self._seen(getattr(sys.modules.get(module), "__file__", None) or "")
