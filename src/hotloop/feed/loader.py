"""``Loader``: torch's DataLoader with another way of carrying batches from workers to the training loop."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from hotloop.feed.engine import Engine


class Loader(DataLoader[Any]):
    """A drop-in for ``torch.utils.data.DataLoader``: the same arguments, the same batches bit for bit.

    A batch's tensors lie in a recycled slot of shared memory. They stay valid as long as anything holds them:
    the slot is used again when the last tensor (or array made from one) is gone. Who keeps many batches gets
    copies. ``copy=True`` hands out copies always; :meth:`give_back` frees a batch's slot at once.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | str = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        copy: bool = False,
        debug: bool = False,
        worker_method: str = "auto",
        seed_by: str = "worker",
    ) -> None:
        self.copy = copy
        self.debug = debug
        self.worker_method = worker_method
        self.seed_by = seed_by
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return super()._get_iterator()
        self.check_worker_number_rationality()
        return Engine(self)
