# truth: input/slow-sample | input/single-process | input/per-sample-conversion | input/slow-collate
# bottleneck: input
# line: torch\.tensor|torch\.stack|get_batch|encode|for
# not: input/too-few-workers | host/python-in-step
"""Character model without a DataLoader: get_batch encodes text each time."""
import torch
import torch.nn as nn
from torch.nn import functional as F

torch.manual_seed(1337)
torch.set_num_threads(1)
text = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(200_000))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
block_size, batch_size = 128, 32


def encode(s):
    return [stoi[c] for c in s]


def get_batch():
    ix = torch.randint(len(text) - block_size - 1, (batch_size,)).tolist()
    x = torch.stack([torch.tensor(encode(text[i:i + block_size])) for i in ix])
    y = torch.stack([torch.tensor(encode(text[i + 1:i + block_size + 1])) for i in ix])
    return x, y


class Bigram(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.table = nn.Embedding(vocab, vocab)

    def forward(self, idx, targets):
        logits = self.table(idx)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


model = Bigram(len(chars))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for it in range(1500):
    xb, yb = get_batch()
    loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % 300 == 0:
        print(it, loss.item())
