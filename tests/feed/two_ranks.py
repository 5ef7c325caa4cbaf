"""One of two ranks of a real gloo group that accumulates micro-batches of unequal sizes under DDP.

``python two_ranks.py RANK FOLDER``: writes what it found to ``FOLDER/RANK.json``.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.feed.test_accumulation import Recorder, mean_loss, micro_batches, model
from torch.nn.parallel import DistributedDataParallel

from hotloop.feed.accumulation import Accumulation

#: Sizes of the micro-batches of both ranks: groups of two, the last one partial.
SIZES = [[3, 5, 2, 4, 1], [7, 1, 6, 2, 9]]
STEPS = 2


def batches_of(rank: int) -> list[Any]:
    return micro_batches([n for sizes in SIZES for n in sizes])[rank * 5 : rank * 5 + 5]


def wanted() -> list[list[torch.Tensor]]:
    """The gradients of the big batches of both ranks, on one model."""
    net = model()
    optimizer = Recorder(net.parameters())
    for start in range(0, 5, STEPS):
        group = [batch for rank in range(2) for batch in batches_of(rank)[start : start + STEPS]]
        optimizer.zero_grad()
        mean_loss(net, tuple(torch.cat(column) for column in zip(*group, strict=True))).backward()
        optimizer.step()
    return optimizer.seen


def error(seen: list[list[torch.Tensor]], of: list[list[torch.Tensor]]) -> float:
    assert len(seen) == len(of)
    return max(
        float((a - b).abs().max())
        for mine, big in zip(seen, of, strict=True)
        for a, b in zip(mine, big, strict=True)
    )


def counted(net: DistributedDataParallel) -> list[int]:
    """Appended to at every reduction of a bucket."""
    calls: list[int] = []

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP looks at annotations
        calls.append(1)
        reduced = dist.all_reduce(bucket.buffer() / dist.get_world_size(), async_op=True)
        return reduced.get_future().then(lambda future: future.value()[0])

    net.register_comm_hook(None, hook)
    return calls


def run(rank: int, folder: Path) -> dict[str, Any]:
    batches, found = batches_of(rank), {}
    net = DistributedDataParallel(model())
    calls = counted(net)
    optimizer = Recorder(net.parameters())
    accumulation = Accumulation(optimizer, steps=STEPS, model=net)
    reductions_at, state = [], None
    for number, batch in enumerate(accumulation(batches)):
        before = len(calls)
        accumulation.backward(mean_loss(net, batch), len(batch[0]))
        if len(calls) > before:
            reductions_at.append(number)
        if number == 2:
            state = copy.deepcopy([net.state_dict(), accumulation.state_dict()])
    found["reductions_at"] = reductions_at
    found["num_optimizer_steps"] = accumulation.num_optimizer_steps
    found["largest_error"] = error(optimizer.seen, wanted())

    assert state is not None
    net = DistributedDataParallel(model(), gradient_as_bucket_view=True)  # loaded gradients lie elsewhere
    net.load_state_dict(state[0])
    optimizer = Recorder(net.parameters())
    accumulation = Accumulation(optimizer, steps=STEPS, model=net)
    accumulation.load_state_dict(state[1])
    for batch in accumulation(batches[3:]):
        accumulation.backward(mean_loss(net, batch), len(batch[0]))
    found["resumed_error"] = error(optimizer.seen, wanted()[1:])

    try:
        for number, batch in enumerate(accumulation(batches[:2])):
            if number == 0:
                accumulation.backward(mean_loss(net, batch), len(batch[0]))
    except RuntimeError as refused:
        found["skipped"] = str(refused)
    return found


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    (folder / f"{rank}.json").write_text(json.dumps(run(rank, folder)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
