# healthy
# bottleneck: device
"""Every 50 steps the state is cloned and a thread writes it beside training."""
import queue
import tempfile
import threading
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class AsyncCheckpointer:
    def __init__(self, path):
        self.path, self.q = path, queue.Queue(maxsize=1)
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while (item := self.q.get()) is not None:
            torch.save(item, self.path)

    def save(self, model, step):
        if not self.q.full():
            self.q.put({"step": step, "model": {k: v.clone() for k, v in model.state_dict().items()}})

    def close(self):
        self.q.put(None)
        self.thread.join()


with tempfile.TemporaryDirectory() as folder:
    model = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 16))
    opt = torch.optim.Adam(model.parameters(), fused=True)
    x, y = torch.randn(6400, 256), torch.randint(0, 16, (6400,))
    saver, step = AsyncCheckpointer(Path(folder) / "last.pt"), 0
    for epoch in range(6):
        for idx in torch.randperm(len(x)).split(128):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                saver.save(model, step)
        print(epoch, loss.item())
    saver.close()
