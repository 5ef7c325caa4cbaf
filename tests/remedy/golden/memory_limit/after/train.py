from hotloop.feed import cached
from torch.utils.data import DataLoader


def train(model, optimizer, scans):
    loader = DataLoader(cached(scans, stage="decode", max_bytes="2GiB"), batch_size=8)
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
