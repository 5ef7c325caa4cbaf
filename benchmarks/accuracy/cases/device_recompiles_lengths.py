# truth: device/recompiles
# bottleneck: device | host | startup
# not: input/single-process
"""torch.compile(dynamic=False) on sentences of every length: one compilation per length."""
import torch
import torch._dynamo
from torch import nn

torch.manual_seed(0)
torch._dynamo.config.recompile_limit = 64


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(300, 32)
        self.mix = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.norm = nn.LayerNorm(32)
        self.out = nn.Linear(32, 5)

    def forward(self, t):
        h = self.emb(t)
        h = self.norm(h + self.mix(h) * h.mean(1, keepdim=True))
        return self.out(h)


model = Tagger()
step_fn = torch.compile(model, backend="eager", dynamic=False)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
lengths = list(range(16, 24))
for step in range(96):
    n = lengths[step // 12 % len(lengths)]
    tokens = torch.randint(0, 300, (16, n))
    loss = nn.functional.cross_entropy(step_fn(tokens).flatten(0, 1), (tokens % 5).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
