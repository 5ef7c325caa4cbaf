# truth: distributed/straggler | distributed/unbalanced-input | host/python-in-step
# bottleneck: collective | host | device
# has: distributed/straggler
# launch: torchrun --standalone --nproc-per-node 2
# not: input/single-process | input/slow-sample
"""Two ranks; the second one also 'post-processes' its predictions in Python after every step."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def postprocess(rows):
    best = 0.0
    for row in rows:
        for v in row:
            best = max(best, (v * v + 1.0) ** 0.5)
    return best


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(2400, 64), torch.randn(2400, 64))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    worst = 0.0
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            out = model(x)
            loss = nn.functional.mse_loss(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank == 1:
                worst = max(worst, postprocess(out.detach().repeat(10, 4).tolist()))
    if rank == 0:
        print(loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
