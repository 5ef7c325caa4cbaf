# truth: cadence/evaluation
# bottleneck: evaluation
# not: input/single-process | input/too-few-workers | host/python-in-step
"""nanoGPT-like: estimate_loss draws 80 batches of both splits every 25 updates, from get_batch."""
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
data = torch.randint(0, 96, (50_000,))
splits = {"train": data[:45_000], "val": data[45_000:]}
T, B = 64, 8


def get_batch(split):
    d = splits[split]
    ix = torch.randint(len(d) - T - 1, (B,))
    x = torch.stack([d[i:i + T] for i in ix])
    y = torch.stack([d[i + 1:i + T + 1] for i in ix])
    return x, y


class TinyGPT(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.tok = nn.Embedding(96, width)
        self.pos = nn.Parameter(torch.zeros(T, width))
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.head = nn.Linear(width, 96)

    def forward(self, idx, targets):
        h = self.tok(idx) + self.pos
        h = self.layer(h, src_mask=nn.Transformer.generate_square_subsequent_mask(T), is_causal=True)
        logits = self.head(h)
        return logits, F.cross_entropy(logits.view(-1, 96), targets.view(-1))


@torch.no_grad()
def estimate_loss(model):
    out = {}
    model.eval()
    for split in splits:
        losses = torch.zeros(80)
        for k in range(80):
            _, loss = model(*get_batch(split))
            losses[k] = loss.item()
        out[split] = losses.mean().item()
    model.train()
    return out


model = TinyGPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for it in range(200):
    if it % 25 == 0:
        print(it, estimate_loss(model))
    _, loss = model(*get_batch("train"))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
