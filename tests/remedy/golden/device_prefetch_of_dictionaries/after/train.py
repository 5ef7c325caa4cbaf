import torch
from hotloop.feed import cached
from torch.utils.data import DataLoader
from hotloop.feed import DevicePrefetcher

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fit(model, optimizer, loader):
    for batch in DevicePrefetcher(loader, device):
        batch = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(batch["name"])


def main(model, optimizer, dataset):
    loader = DataLoader(cached(dataset), batch_size=4, pin_memory=True)
    fit(model, optimizer, loader)
