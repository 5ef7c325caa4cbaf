import torch
from torch import nn


from tqdm import tqdm


def train(model, loader):
    total = 0.0
    bar = tqdm(loader)
    for images, labels in bar:
        start = time.time()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        bar.set_postfix(loss=loss.item())
        times.append(time.time() - start)
    return total / len(loader)
