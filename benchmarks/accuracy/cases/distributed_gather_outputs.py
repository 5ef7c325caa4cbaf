# truth: distributed/slow-collective
# bottleneck: collective
# launch: torchrun --standalone --nproc-per-node 2
# line: all_gather|all_reduce
"""All activations of both ranks are gathered in each step, for a metric that is printed once per epoch."""
import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    torch.set_num_threads(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    memory = torch.randn(2_000_000)
    for step in range(120):
        x = torch.randn(64, 32)
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        parts = [torch.empty_like(memory) for _ in range(2)]
        dist.all_gather(parts, memory)
        if step % 40 == 0 and dist.get_rank() == 0:
            print(step, loss.item(), parts[1].std().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
