# truth: cadence/checkpoint
# bottleneck: checkpoint
# line: torch\.save
# not: input/single-process
"""A wide embedding model, saved with its optimiser every 5 steps."""
import os
import tempfile

import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, users=120_000, items=60_000, dim=48):
        super().__init__()
        self.users = nn.Embedding(users, dim, sparse=True)
        self.items = nn.Embedding(items, dim, sparse=True)

    def forward(self, u, i):
        return (self.users(u) * self.items(i)).sum(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Recommender()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, 301):
            u = torch.randint(0, 120_000, (512,))
            i = torch.randint(0, 60_000, (512,))
            loss = nn.functional.binary_cross_entropy_with_logits(model(u, i), ((u + i) % 2).float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
                           os.path.join(folder, "last.pt"))
                print(f"saved at {step}, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
