"""Whether a worker can make batches of a loader at all, found out before the script depends on it.

A dataset that holds CUDA tensors or locks fails only in a worker. One worker makes one batch that nobody
gets. It draws the samples itself: the script's sampler and generators never notice. An open file fails in no
worker: all of them move its one position, and read what nobody asked for. For a batch that cannot be sent the
loop would wait for ever.
"""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any, Final

from hotloop.probe.observers.open_files import open_file

#: Seconds for a batch: a lock held while the worker was forked is never free in it.
PATIENCE_S: Final = 120

_sampler: Any = None


def first() -> Any:
    """The first indices, drawn in the worker, which has a copy of the sampler by its fork."""
    return next(iter(_sampler), [])


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

    ``module`` is ``torch.utils.data.dataloader``, ``changes`` settings that go together. Where workers are
    not forked nothing is tried: what cannot live in them fails as they are started.
    """
    global _sampler
    if loader.num_workers or not changes.get("num_workers"):
        return ""
    if torch.multiprocessing.get_start_method() != "fork":
        return ""
    name = open_file(loader.dataset)
    if name:
        return f"what the dataset holds open must not be shared by processes: {name}"
    other, kind = object.__new__(module.DataLoader), module._MultiProcessingDataLoaderIter
    indices = "batch_sampler" if loader._auto_collation else "sampler"
    one = {"num_workers": 1, "persistent_workers": False, "pin_memory": False, "timeout": PATIENCE_S}
    collate = Shipped(changes.get("collate_fn", loader.collate_fn))
    apart = {"generator": torch.Generator(), indices: (First(),), "collate_fn": collate}
    other.__dict__.update({**loader.__dict__, **changes, **one, **apart})
    iterator = None
    _sampler = loader._index_sampler
    try:
        iterator = kind(other)
        getattr(kind._next_data, "__wrapped__", kind._next_data)(iterator)
    except Exception as error:
        return f"a worker cannot make its batches: {message_of(error)}"
    finally:
        _sampler = None
        if iterator is not None:
            end_workers(iterator)
    return ""
