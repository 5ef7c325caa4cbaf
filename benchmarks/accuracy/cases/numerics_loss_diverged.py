# truth: numerics/loss-diverged | numerics/non-finite-loss
# bottleneck: device
"""A warm-up that never ends: the learning rate grows by 2 % in each step."""
import torch


class Regressor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(192, 192) for _ in range(4))
        self.out = torch.nn.Linear(192, 1)

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.out(x)


def fit(growth=1.02):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Regressor()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x = torch.randn(4096, 192)
    y = x[:, :4].sum(1, keepdim=True)
    for step in range(500):
        if step > 150:
            for group in optimizer.param_groups:
                group["lr"] *= growth
        pick = torch.randint(0, 4096, (256,))
        loss = torch.nn.functional.mse_loss(model(x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


fit()
