"""kornia: the batch is augmented in the step; that takes longer than the network."""

import kornia.augmentation as K
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

images = torch.rand(640, 3, 96, 96)
loader = DataLoader(TensorDataset(images, torch.randint(0, 10, (640,))), batch_size=32, shuffle=True)
augment = K.AugmentationSequential(
    K.RandomAffine(degrees=20.0, translate=(0.1, 0.1), p=0.8),
    K.ColorJitter(0.2, 0.2, 0.2, 0.1, p=0.8),
    K.RandomGaussianBlur((5, 5), (0.1, 2.0), p=0.5),
    K.RandomElasticTransform(p=0.5),
    data_keys=["input"],
)
model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(4):
    for batch, targets in loader:
        with torch.no_grad():
            batch = augment(batch)
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
