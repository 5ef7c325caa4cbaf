# truth: distributed/unoverlapped-collective | distributed/slow-collective
# bottleneck: collective
# launch: torchrun --standalone --nproc-per-node 2
# line: all_reduce
"""Data parallel by hand: gradients are averaged one by one after backward has ended."""
import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(40_000, 64), nn.Flatten(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 64))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(dist.get_rank())
    for step in range(130):
        x = torch.randint(0, 40_000, (16, 8), generator=g)
        loss = model(x).pow(2).mean()
        opt.zero_grad(set_to_none=False)
        loss.backward()
        average_gradients(model)
        opt.step()
    if dist.get_rank() == 0:
        print(loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
