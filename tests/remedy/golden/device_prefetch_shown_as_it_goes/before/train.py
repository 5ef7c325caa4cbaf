from torch import nn
from tqdm import tqdm


def fit(model, optimizer, loader, device):
    with tqdm(loader) as bar:
        for images, labels in bar:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.set_postfix(loss=loss.item())
