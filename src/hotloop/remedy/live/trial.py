"""Whether a worker can make a loader's batches, and the same ones: found out before the script relies on it.

A dataset that holds CUDA tensors or locks fails only in a worker. One worker makes one batch that nobody
gets. It draws the samples itself: the script's sampler and generators never notice. An open file fails in no
worker: all of them move its one position, and read what nobody asked for. For a batch that cannot be sent the
loop would wait for ever. Samples that are others when they are made again, with all generators of random
numbers put back, depend on those made before them: each worker would have its own.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from multiprocessing import reduction
from types import FrameType
from typing import Any, Final

from hotloop.probe.observers.loader_facts import own_dataset, start_method
from hotloop.probe.observers.open_files import open_file
from hotloop.state.snapshot import changed, generators, snapshot

#: Seconds for a batch: a lock held while the worker was forked is never free in it.
PATIENCE_S: Final = 120

_sampler: Any = None
_again: Again | None = None  # in the worker


def first() -> Any:
    """The first indices, drawn in the worker, which has a copy of the sampler by its fork."""
    global _again
    indices: Any = next(iter(_sampler), [])
    info = importlib.import_module("torch.utils.data").get_worker_info()
    _again = Again(info.dataset, indices) if isinstance(indices, list) else None
    return indices


class Again:
    """Makes samples a second time, from where all generators of random numbers were before the first."""

    def __init__(self, dataset: Any, indices: list[Any]) -> None:
        self._dataset, self._indices = dataset, indices
        self._randomness = importlib.import_module("hotloop.feed.randomness")
        known = self._randomness.is_generator
        self._own = [one for one in generators(dataset) if known(one)]
        self._states = self._capture()
        self._held = snapshot(own_dataset(dataset))

    def check(self, samples: Any) -> None:
        """Raises StatefulError where the samples are others this time."""
        comparing = importlib.import_module("hotloop.feed.layout")
        one = self._kept(comparing, samples)
        now = self._capture()
        self._restore(self._states)
        another = self._kept(comparing, self._made())
        self._restore(now)
        if one is None or another is None or not comparing.differences(one, another):
            return
        names = changed(self._held, snapshot(own_dataset(self._dataset)))
        raise StatefulError(
            "its samples depend on those made before them"
            + (f" ({', '.join(names)})" if names else "")
            + ", and each worker would have its own"
        )

    def _made(self) -> Any:
        if hasattr(self._dataset, "__getitems__"):
            return self._dataset.__getitems__(self._indices)
        return [self._dataset[index] for index in self._indices]

    def _kept(self, comparing: Any, samples: Any) -> Any:
        try:
            return comparing.snapshot(samples)
        except Exception:  # of a kind that is not compared
            return None

    def _capture(self) -> tuple[Any, list[Any]]:
        return self._randomness.capture(), [self._randomness.generator_state(one) for one in self._own]

    def _restore(self, states: tuple[Any, list[Any]]) -> None:
        self._randomness.restore(states[0])
        for one, state in zip(self._own, states[1], strict=True):
            self._randomness.set_generator_state(one, state)


class StatefulError(Exception):
    """A sample is another one when it is made again."""


class First:
    """Becomes the first indices on its way to the worker."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Unpickled by ``first``."""
        return first, ()


class Shipped:
    """Collates in the worker, and sees whether the batch can be sent."""

    def __init__(self, collate: Any) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> None:
        """Raises what sending would, which in the queue's own thread nobody hears of."""
        if _again is not None:
            _again.check(samples)
        reduction.ForkingPickler.dumps(self._collate(samples))


def end_workers(iterator: Any) -> None:
    """End the workers of an iterator that is not the script's: no row of the recording tells of it."""
    end = type(iterator)._shutdown_workers
    while hasattr(end, "__wrapped__"):
        end = end.__wrapped__
    end(iterator)


def message_of(error: Exception) -> str:
    """What an error says, in one line and without the traceback that a worker put before it."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    after = [line for line in lines[frames[-1] + 1 :] if not line.startswith("    ")] if frames else lines
    return " ".join(line.strip() for line in after or lines[-1:])[:300]


def why_not(module: Any, torch: Any, loader: Any, changes: dict[str, Any]) -> str:
    """Why workers cannot make batches of this loader, "" where they can or where it has workers now.

    ``module`` is ``torch.utils.data.dataloader``, ``changes`` settings that go together. The worker that
    tries is forked; where the script's are not, what cannot be sent to them fails as they are started.
    """
    global _sampler
    if loader.num_workers or not changes.get("num_workers"):
        return ""
    if start_method(loader) != "fork":
        if file := _runs_again():
            return f'each worker would run {file} again, which has no `if __name__ == "__main__":`'
        if loader.multiprocessing_context is not None or multiprocessing.get_start_method(allow_none=True):
            return ""  # a script that chose another way may not stand a fork
    name = open_file(loader.dataset)
    if name:
        return f"what the dataset holds open must not be shared by processes: {name}"
    other, kind = object.__new__(module.DataLoader), module._MultiProcessingDataLoaderIter
    indices = "batch_sampler" if loader._auto_collation else "sampler"
    one = {"num_workers": 1, "persistent_workers": False, "pin_memory": False, "timeout": PATIENCE_S}
    collate = Shipped(changes.get("collate_fn", loader.collate_fn))
    apart = {"generator": torch.Generator(), indices: (First(),), "collate_fn": collate}
    apart["_DataLoader__multiprocessing_context"] = torch.multiprocessing.get_context("fork")
    other.__dict__.update({**loader.__dict__, **changes, **one, **apart})
    iterator = None
    _sampler = loader._index_sampler
    try:
        iterator = kind(other)
        getattr(kind._next_data, "__wrapped__", kind._next_data)(iterator)
    except StatefulError as error:
        return message_of(error).rpartition(f"{StatefulError.__name__}: ")[2]
    except Exception as error:
        return f"a worker cannot make its batches: {message_of(error)}"
    finally:
        _sampler = None
        if iterator is not None:
            end_workers(iterator)
    return ""


def _runs_again() -> str:
    """The script's name, where a worker that imports it would go through its loop; "" where none would."""
    main = sys.modules["__main__"]
    frame: FrameType | None = sys._getframe()
    while frame is not None and (frame.f_code.co_name != "<module>" or frame.f_globals is not vars(main)):
        frame = frame.f_back
    if frame is None or not hasattr(main, "__file__"):
        return ""
    code = frame.f_code
    guarded = "__name__" in code.co_names and "__main__" in code.co_consts
    return "" if guarded else os.path.basename(code.co_filename)
