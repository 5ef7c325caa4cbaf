from torch import nn
from hotloop.feed import DevicePrefetcher


def fit(model, optimizer, loader):
    for batch in DevicePrefetcher(loader, "cuda"):
        inputs = batch["image"].to("cuda", non_blocking=True)
        labels = batch["label"]
        labels = labels.to("cuda", non_blocking=True)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del batch
