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
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True) for _ in range(3))
        self.out = nn.Linear(32, 5)

    def forward(self, t):
        h = self.emb(t)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


model = Tagger()
step_fn = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
lengths = list(range(16, 46))
for step in range(120):
    n = lengths[step % 60 % len(lengths)] if step < 60 else lengths[(step * 7) % 30]
    tokens = torch.randint(0, 300, (16, n))
    loss = nn.functional.cross_entropy(step_fn(tokens).flatten(0, 1), (tokens % 5).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
