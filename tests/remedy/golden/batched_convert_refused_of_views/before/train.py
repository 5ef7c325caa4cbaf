import numpy as np
import torch

data = np.memmap("train.bin", dtype=np.uint16, mode="r")


def get_batch(n):
    ix = torch.randint(len(data) - n, (12,))
    return torch.stack([torch.from_numpy(data[i:i + n].astype(np.int64)) for i in ix])
