import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader


def main(model, data, optimizer, device):
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=4)
    for x, y in loader:
        x, y = x.to("cuda"), y.to("cuda")
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
