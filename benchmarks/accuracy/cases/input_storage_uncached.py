# truth: input/slow-storage | input/slow-sample | input/single-process
# bottleneck: input
# line: read|open|fadvise|frombuffer
"""Volumes larger than memory would hold: each read goes to the disk, not to the page cache."""
import os
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE = (64, 128, 128)


class Volumes(Dataset):
    def __init__(self, root, n):
        self.paths = [os.path.join(root, f"{i}.raw") for i in range(n)]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        fd = os.open(self.paths[i], os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with os.fdopen(fd, "rb", buffering=0) as f:
            raw = f.read()
        vol = np.frombuffer(raw, dtype=np.float32).reshape(SHAPE)
        return torch.from_numpy(vol[::16, ::8, ::8].copy()), i % 2


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=os.getcwd() if os.access(".", os.W_OK) else None) as root:
        for i in range(60):
            with open(os.path.join(root, f"{i}.raw"), "wb") as f:
                f.write(rng.standard_normal(SHAPE, dtype=np.float32).tobytes())
                f.flush()
                os.fsync(f.fileno())
        loader = DataLoader(Volumes(root, 60), batch_size=4, shuffle=True)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4 * 16 * 16, 2))
        opt = torch.optim.SGD(model.parameters(), 1e-3)
        for epoch in range(12):
            for x, y in loader:
                loss = torch.nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(epoch, loss.item())


if __name__ == "__main__":
    main()
