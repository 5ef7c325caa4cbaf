"""An iterator of our own beside the script's, with other settings."""

from __future__ import annotations

import weakref
from typing import Any

from hotloop.remedy.live.loader import consistent
from hotloop.remedy.live.trial import PATIENCE_S, end_workers, message_of


class Sibling:
    """An iterator of our own that draws its indices from the script's sampler."""

    def __init__(self, iterator: Any, *, many: bool) -> None:
        self._iterator = iterator
        self._many = many
        self._original = type(iterator)._next_data.__wrapped__
        self.main: Any = lambda: None  # weak: the script's iterator it stands in for
        self.failed = ""  # why it gives no more batches, and the run with it
        self._primed = False

    @property
    def num_tasks(self) -> int:
        """Batches its workers are given at a time."""
        return self._iterator._prefetch_factor * self._iterator._num_workers if self._many else 0

    @property
    def outstanding(self) -> int:
        """Batches its workers were given and that were not handed out."""
        return len(self._iterator._task_info) if self._many else 0

    def follow(self, main: Any) -> None:
        """Draw indices from this iterator's sampler; what is left of another epoch is dropped."""
        self.hold()
        for _ in range(self.outstanding):
            self._original(self._iterator)
        self.main = weakref.ref(main)
        self._iterator._sampler_iter = main._sampler_iter
        self._iterator.__dict__.pop("_try_put_index", None)
        self._primed = False

    def follows(self, main: Any) -> bool:
        """Whether it draws from this iterator's sampler, in this epoch."""
        return self.main() is main and self._iterator._sampler_iter is main._sampler_iter

    def hold(self) -> None:
        """Draw no more."""
        if self._many:
            self._iterator._try_put_index = lambda: None

    def next(self) -> Any:
        """The next batch. Raises StopIteration where the sampler has no more."""
        if self._many and not self._primed:
            self._primed = True
            for _ in range(self.num_tasks - self.outstanding):
                self._iterator._try_put_index()
        try:
            return self._original(self._iterator)
        except StopIteration:
            raise
        except Exception as error:
            self.failed = f"its workers failed, and the command with them: {message_of(error)}"
            raise

    def close(self) -> None:
        """End its workers."""
        if self._many:
            end_workers(self._iterator)


def made_beside(module: Any, torch: Any, loader: Any, changes: dict[str, Any]) -> Any:
    """An iterator over a loader's dataset with other settings; it draws nothing from the script's generators.

    ``module`` is ``torch.utils.data.dataloader``.
    """
    other = object.__new__(module.DataLoader)
    other.__dict__.update(loader.__dict__)
    other.__dict__.update(consistent({**loader.__dict__, **changes}, changes))
    generator = torch.Generator()
    generator.manual_seed(0)
    sampler = "batch_sampler" if loader._auto_collation else "sampler"
    other.__dict__.update({"generator": generator, sampler: (), "persistent_workers": False})
    many = other.num_workers > 0
    other.__dict__["timeout"] = (other.timeout or PATIENCE_S) if many else 0
    made = (module._MultiProcessingDataLoaderIter if many else module._SingleProcessDataLoaderIter)(other)
    made._persistent_workers = many  # what ends an epoch does not end the workers
    return made
