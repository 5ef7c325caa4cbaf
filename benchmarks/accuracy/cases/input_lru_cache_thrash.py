# truth: input/cache-thrash | input/slow-sample | input/single-process | input/repeated-work
# bottleneck: input
# line: lru_cache|load_scene|sin|cumsum|zlib
"""A least-recently-used cache for 40 % of the scenes, a fresh shuffle every epoch."""
import functools
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BLOBS = [zlib.compress(np.random.default_rng(i).integers(0, 9, 400_000, dtype=np.uint8).tobytes(), 1) for i in range(200)]


@functools.lru_cache(maxsize=80)
def load_scene(i):
    return np.frombuffer(zlib.decompress(BLOBS[i]), dtype=np.uint8).reshape(100, 4000)


class Scenes(Dataset):
    def __len__(self):
        return len(BLOBS)

    def __getitem__(self, i):
        scene = load_scene(i)
        return torch.from_numpy(scene[:, ::40].astype(np.float32)), i % 2


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(10_000, 2))
    opt = torch.optim.SGD(model.parameters(), 1e-4)
    loader = DataLoader(Scenes(), batch_size=10, shuffle=True)
    for epoch in range(10):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(loss.item())


if __name__ == "__main__":
    main()
