# truth: distributed/unbalanced-input | input/single-process | input/slow-sample | distributed/straggler
# bottleneck: input | device | collective
# has: distributed/unbalanced-input | distributed/straggler
# launch: torchrun --standalone --nproc-per-node 2
"""The second half of the files lies on a slower disk: rank 1 waits for its data, rank 0 waits for rank 1."""
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset


class Files(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, i):
        if i >= 800:
            time.sleep(0.008)
        g = torch.Generator().manual_seed(i)
        return torch.randn(32, generator=g), i % 2


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    files = Files()
    part = len(files) // world
    loader = DataLoader(Subset(files, range(rank * part, (rank + 1) * part)), batch_size=8)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(rank, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
