"""How long a batch is valid, and what is done with its memory afterwards."""

from __future__ import annotations

import ctypes
import gc
import math
from typing import Any

import numpy as np
import pytest
import torch
from loader_datasets import Large

from hotloop.feed import Loader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def right(number: int, batch: Any) -> bool:
    data, index = batch
    return bool((data == index[:, None]).all()) and index.tolist() == [2 * number, 2 * number + 1]


@pytest.mark.parametrize("options", [{}, {"copy": True}, {"debug": True}, {"prefetch_factor": 1}])
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_whatever_is_kept_stays_right(options: dict[str, Any], num_workers: int) -> None:
    if not num_workers:
        options = {name: value for name, value in options.items() if name != "prefetch_factor"}
    loader = Loader(Large(60), batch_size=2, num_workers=num_workers, **options)
    kept: dict[int, Any] = {}
    for number, batch in enumerate(loader):
        if number % 3 == 0 or number > 25:
            kept[number] = batch
        if number == 20:
            del kept[0], kept[6]
    gc.collect()
    for number, batch in enumerate(loader):  # another epoch writes the slots again
        assert right(number, batch)
    for number, batch in kept.items():
        assert right(number, batch)


def test_any_kind_of_reference_keeps_a_batch() -> None:
    loader = Loader(Large(40), batch_size=2, num_workers=1, prefetch_factor=1)
    iterator = iter(loader)
    views = [next(iterator)[0][1, 5:9], next(iterator)[0].numpy()[1], next(iterator)[0].T.unsqueeze(0)]
    storage = next(iterator)[0].untyped_storage()
    weight = torch.ones(1 << 18, requires_grad=True)
    loss = (next(iterator)[0] * weight).sum()  # autograd keeps the batch
    rest = [int(index[0]) for _, index in iterator]
    assert rest == list(range(10, 40, 2))
    loss.backward()
    assert weight.grad is not None and weight.grad.eq(8 + 9).all()
    assert views[0].tolist() == [1.0] * 4 and np.all(views[1] == 3.0) and views[2].unique().tolist() == [4, 5]
    assert torch.tensor([], dtype=torch.float32).set_(storage).unique().tolist() == [6, 7]  # type: ignore[call-overload]


def test_a_batch_may_be_written_to() -> None:
    for number, (data, _) in enumerate(Loader(Large(), batch_size=2, num_workers=1)):
        assert data[0, 0] == 2 * number
        data.mul_(-7).add_(0.5)


def test_memory_is_used_again_only_when_given_back() -> None:
    iterator = iter(Loader(Large(60), batch_size=2, num_workers=1, prefetch_factor=1))
    first = next(iterator)
    address = first[0].data_ptr()
    addresses = {next(iterator)[0].data_ptr() for _ in range(10)}
    assert address not in addresses
    assert len(addresses) <= 4
    del first
    assert address in {next(iterator)[0].data_ptr() for _ in range(5)}


def test_debug_poisons_what_nothing_holds_any_more() -> None:
    iterator = iter(Loader(Large(40), batch_size=2, num_workers=1, prefetch_factor=1, debug=True))
    batch = next(iterator)
    pointer = ctypes.cast(batch[0].data_ptr(), ctypes.POINTER(ctypes.c_float))
    assert pointer[0] == 0
    del batch
    assert math.isnan(pointer[0])


@pytest.mark.gpu
def test_a_pinned_slot_is_not_written_while_the_device_copies() -> None:
    loader = Loader(Large(200), batch_size=2, num_workers=2, pin_memory=True, prefetch_factor=1)
    copies = []
    torch.cuda._sleep(200_000_000)  # every copy waits behind this
    for data, _ in loader:
        copies.append(data.to("cuda", non_blocking=True))
        del data
    for number, copy in enumerate(copies):
        assert copy[0].eq(2 * number).all() and copy[1].eq(2 * number + 1).all()
