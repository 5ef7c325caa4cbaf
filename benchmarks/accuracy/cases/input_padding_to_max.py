# truth: input/padding
# bottleneck: device
# line: loader = DataLoader
# not: input/single-process | input/slow-collate
"""Reviews of 10 to 40 words, each padded when it is encoded to the 192 that the model could read."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAX_LENGTH = 192


class Reviews(Dataset):
    def __init__(self, n=1600):
        rng = random.Random(5)
        self.ids = torch.zeros(n, MAX_LENGTH, dtype=torch.long)
        self.mask = torch.zeros(n, MAX_LENGTH, dtype=torch.long)
        for row in range(n):
            length = rng.randint(10, 40)
            self.ids[row, :length] = torch.tensor([rng.randrange(1, 2000) for _ in range(length)])
            self.mask[row, :length] = 1
        self.labels = self.ids[:, 0] % 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": self.mask[i], "labels": self.labels[i]}


class Classifier(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.words = nn.Embedding(2000, width)
        self.places = nn.Parameter(torch.randn(MAX_LENGTH, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids) + self.places[: input_ids.shape[1]]
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        weights = attention_mask.unsqueeze(-1).float()
        return self.head((x * weights).sum(1) / weights.sum(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Reviews(), batch_size=16, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    for batch in loader:
        logits = model(batch["input_ids"], batch["attention_mask"])
        loss = nn.functional.cross_entropy(logits, batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    main()
