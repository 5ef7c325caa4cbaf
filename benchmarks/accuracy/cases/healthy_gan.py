# healthy
# bottleneck: device
"""Two optimisers taking turns."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
real_images = torch.rand(640, 1, 32, 32)
G = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 16 * 64), nn.ReLU(), nn.Unflatten(1, (16, 8, 8)),
                  nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Sigmoid())
D = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2),
                  nn.Flatten(), nn.Linear(64 * 64, 1))
opt_g = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
for epoch in range(6):
    for (real,) in DataLoader(TensorDataset(real_images), batch_size=64, shuffle=True, drop_last=True):
        fake = G(torch.randn(64, 32))
        d_loss = bce(D(real), torch.ones(64, 1)) + bce(D(fake.detach()), torch.zeros(64, 1))
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = bce(D(fake), torch.ones(64, 1))
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
    print(epoch, d_loss.item(), g_loss.item())
