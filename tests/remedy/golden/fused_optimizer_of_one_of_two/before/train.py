import torch
from torch import nn

generator, discriminator = nn.Linear(2, 4), nn.Linear(4, 1)
optimizer_G = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
