# truth: distributed/duplicated-samples
# bottleneck: device | collective
# launch: torchrun --standalone --nproc-per-node 2
"""DDP without a DistributedSampler: both ranks go through the same samples in the same order."""
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(1000, 3, 24, 24)
    y = torch.randint(0, 10, (1000,))
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    net = nn.Sequential(nn.Conv2d(3, 40, 3), nn.ReLU(), nn.Conv2d(40, 40, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(40, 10))
    net = nn.parallel.DistributedDataParallel(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(4):
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
