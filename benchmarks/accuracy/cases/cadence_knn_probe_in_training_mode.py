# truth: cadence/evaluation
# bottleneck: evaluation | device
# line: knn_accuracy|encoder\(|topk
# not: input/single-process
"""Contrastive learning; a probe asks the encoder for a feature bank, without eval() and without a loader."""
import torch
import torch.nn.functional as F
from torch import nn


def two_views(x):
    return x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) > 0.2)


def nt_xent(a, b, t=0.2):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = z @ z.T / t
    sim.fill_diagonal_(-1e9)
    n = len(a)
    return F.cross_entropy(sim, torch.cat([torch.arange(n) + n, torch.arange(n)]))


@torch.no_grad()
def knn_accuracy(encoder, bank_x, bank_y, query_x, query_y, k=20):
    bank = torch.cat([F.normalize(encoder(c), dim=1) for c in bank_x.split(256)])
    query = torch.cat([F.normalize(encoder(c), dim=1) for c in query_x.split(256)])
    votes = bank_y[(query @ bank.T).topk(k).indices]
    return (votes.mode(1).values == query_y).float().mean().item()


torch.manual_seed(0)
torch.set_num_threads(1)
encoder = nn.Sequential(
    nn.Linear(256, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128)
)
head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 1e-3)
x, y = torch.randn(9000, 256), torch.randint(0, 10, (9000,))
for step in range(250):
    batch = x[torch.randint(0, len(x), (128,))]
    a, b = two_views(batch)
    loss = nt_xent(head(encoder(a)), head(encoder(b)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        score = knn_accuracy(encoder, x[:6000], y[:6000], x[6000:], y[6000:])
        print(f"step {step} loss {loss.item():.3f} knn {score:.3f}")
