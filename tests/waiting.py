"""A training that waits for its samples, as a person writes one."""


def waiting(num_samples: int, seconds: float, *, batch_size: int = 2, draws: bool = False) -> str:
    """A script of one epoch over samples of so many seconds; more may follow behind its step."""
    noise = " + torch.randn(8)" if draws else ""
    return f"""
import time, torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return {num_samples}
    def __getitem__(self, i):
        time.sleep({seconds})
        return torch.full((8,), i / 128){noise}, torch.tensor([i / 128])

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Slow(), batch_size={batch_size}, shuffle=True):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
