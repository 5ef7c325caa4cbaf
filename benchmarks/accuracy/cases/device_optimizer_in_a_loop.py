# truth: device/optimizer-not-fused
# bottleneck: device
"""AdamW written by hand, parameter by parameter, for an ensemble of 300 small networks."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MyAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["t"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["t"] += 1
                s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                m = s["m"] / (1 - b1 ** s["t"])
                v = s["v"] / (1 - b2 ** s["t"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * m / (v.sqrt() + group["eps"]))


class Ensemble(nn.Module):
    def __init__(self, members=300, width=16):
        super().__init__()
        self.w = nn.ParameterList(nn.Parameter(torch.randn(width, width) * 0.1) for _ in range(members))
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(members))

    def forward(self, x):
        return torch.tanh(x @ torch.stack(list(self.w)) + torch.stack(list(self.b))[:, None]).mean(0)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Ensemble()
    optimizer = MyAdamW(model.parameters())
    x = torch.randn(2000, 16)
    for epoch in range(4):
        for (xb,) in DataLoader(TensorDataset(x), batch_size=40, shuffle=True):
            loss = (model(xb) - xb.flip(1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
