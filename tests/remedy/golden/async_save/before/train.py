import io

import torch

model = torch.nn.Linear(2, 2)


def keep(model, path):
    torch.save(model.state_dict(), path)  # the newest


for step in range(100):
    if step % 10 == 0:
        keep(model, "last.pt")
    if step % 50 == 0:
        torch.save(
            {"step": step, "model": model.state_dict()},
            f"epoch-{step}.pt",  # one each
        )
torch.save(model, io.BytesIO())
