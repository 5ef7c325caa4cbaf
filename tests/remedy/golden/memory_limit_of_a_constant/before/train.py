from hotloop.feed import cached
from torch.utils.data import DataLoader

ROOM = "50GB"


def train(model, optimizer, scans):
    loader = DataLoader(cached(scans, max_bytes=ROOM), batch_size=8)
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
