"""torch.compile: sequences of their own length in every batch, without dynamic shapes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.lengths = [16 + 16 * int(torch.randint(0, 3, (1,), generator=generator)) for _ in range(size // 16) for _ in range(1)]
        self.data = torch.randint(0, 200, (size, 64), generator=generator)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index, : self.lengths[index // 16]]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(200, 64)
        self.layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.head = nn.Linear(64, 200)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))


def main():
    torch.manual_seed(0)
    loader = DataLoader(Sequences(4800), batch_size=16)
    model = torch.compile(Net(), dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, tokens in enumerate(loader):
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
