"""torchmetrics: the area under the curve over all that was seen is computed anew in every step."""

import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(25600, 64), torch.randint(0, 2, (25600,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
accuracy = torchmetrics.classification.BinaryAccuracy()
auroc = torchmetrics.classification.BinaryAUROC()
for epoch in range(2):
    for step, (inputs, targets) in enumerate(loader):
        logits = model(inputs).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, targets.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_accuracy = accuracy(logits.detach(), targets)
        auroc.update(logits.detach(), targets)
        area = auroc.compute()
        if step % 50 == 0:
            print(epoch, step, f"loss {loss.item():.3f} accuracy {batch_accuracy:.3f} area {area:.3f}")
    print("epoch", epoch, accuracy.compute().item(), auroc.compute().item())
    accuracy.reset()
    auroc.reset()
