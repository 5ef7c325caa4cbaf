# truth: input/straggling-samples | input/slow-sample
# bottleneck: input
# line: decode|sleep
# not: input/too-many-workers
"""Most clips are ready in a millisecond, one in forty has to be fetched again."""
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


def decode(i):
    rnd = random.Random(i)
    if rnd.random() < 0.025:
        time.sleep(0.25)
    else:
        time.sleep(0.001)
    return torch.full((3, 32, 32), rnd.random())


class Clips(Dataset):
    def __len__(self):
        return 1400

    def __getitem__(self, i):
        return decode(i), i % 3


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(14400, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Clips(), batch_size=8, shuffle=True, num_workers=2)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


if __name__ == "__main__":
    main()
