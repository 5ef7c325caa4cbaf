# healthy
# bottleneck: device
""".item() after each step, a branch on the loss, a running mean: on a CPU this costs nothing."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(784, 800), nn.ReLU(), nn.Linear(800, 64))
        self.dec = nn.Sequential(nn.Linear(32, 800), nn.ReLU(), nn.Linear(800, 784))

    def forward(self, x):
        mean, logvar = self.enc(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.dec(z), mean, logvar


def train(epochs=4):
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.rand(6000, 784).round()
    best, ema = float("inf"), None
    for epoch in range(epochs):
        for x in torch.utils.data.DataLoader(data, batch_size=250, shuffle=True):
            recon, mean, logvar = model(x)
            bce = nn.functional.binary_cross_entropy_with_logits(recon, x, reduction="sum") / len(x)
            kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
            loss = bce + kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if loss < best:
                best = loss.item()
            ema = loss.item() if ema is None else 0.95 * ema + 0.05 * loss.item()
        print(f"epoch {epoch} ema {ema:.2f} best {best:.2f} kl {kl.item():.3f}")


train()
