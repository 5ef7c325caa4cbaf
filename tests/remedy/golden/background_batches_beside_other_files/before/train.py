import json
import os

import numpy as np
import torch
from torch import nn

data_dir, out_dir = ".", "out"
os.makedirs(out_dir, exist_ok=True)
with open(os.path.join(data_dir, "train.bin"), "wb") as file:
    file.write(np.arange(8000, dtype=np.float32).tobytes())


def get_batch():
    data = np.memmap(os.path.join(data_dir, "train.bin"), dtype=np.float32, mode="r")
    ix = torch.randint(len(data) - 8, (16,))
    return torch.stack([torch.from_numpy(data[i : i + 8].copy()) for i in ix.tolist()]) / 8000


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x = get_batch()
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        torch.save(model.state_dict(), os.path.join(out_dir, f"ckpt_{step}.pt"))
        with open(out_dir + "/log.jsonl", "a") as file:
            json.dump({"loss": loss.item()}, file)
