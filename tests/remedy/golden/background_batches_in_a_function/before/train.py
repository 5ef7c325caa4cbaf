from dataclasses import dataclass

import torch
from torch import nn

from data import load


@dataclass
class Settings:
    batch_size: int = 16
    steps: int = 50


def get_batch(frames, size):
    at = torch.randint(len(frames), (size,))
    return frames[at] / 255


def train(settings, train_frames, test_frames):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(settings.steps):
        x = get_batch(train_frames, settings.batch_size)
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model(test_frames).sum()


def main():
    settings = Settings()
    train_frames, test_frames = load(settings.batch_size)
    print(train(settings, train_frames, test_frames))


main()
