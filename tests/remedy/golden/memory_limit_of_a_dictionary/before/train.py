from hotloop.feed import cached
from torch.utils.data import DataLoader


KEPT = {}


def train(model, optimizer, scans):
    loader = DataLoader(cached(scans, stage="decode"), batch_size=8)
    KEPT[0] = scans[0]
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
