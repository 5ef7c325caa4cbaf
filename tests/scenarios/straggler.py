"""A DistributedDataParallel training of several machines of this one, in which a rank is slow."""

from __future__ import annotations

#: ``PLACES`` names the variables that hold the rank and the number of ranks, ``SLOW`` the rank that is slow
#: at line 9. Rank 2 says when its machine may go.
SCRIPT = """
    import os, time
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def extra(seconds):
        until = time.perf_counter() + seconds
        while time.perf_counter() < until: sum(range(1000))

    rank, ranks = (int(os.environ[name]) for name in os.environ["PLACES"].split())
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(int(os.environ["STEPS"])):
        loss = model(torch.ones(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == int(os.environ["SLOW"]): extra(0.02)
        if rank == 2 and step == 120: open("enough", "w").close()
    dist.destroy_process_group()
"""


def machine(name: str, ahead_s: int, *words: str) -> list[str]:
    """Run ``words`` as a machine with this name, whose monotonic clock is ahead."""
    apart = ["unshare", "--uts", "--time", "--monotonic", str(ahead_s), "sh", "-c"]
    return [*apart, f'hostname {name}; exec "$@"', "sh", *words]
