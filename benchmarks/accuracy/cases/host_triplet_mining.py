# truth: host/python-in-step
# bottleneck: host | device
# line: hardest_|range\(len
"""Hard triplets are mined by Python loops over the matrix of distances, each branch on one line."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def mine(distances, labels):
    d, l = distances.detach().tolist(), labels.tolist()
    triplets = []
    for a in range(len(l)):
        hardest_pos, hardest_neg = -1, -1
        for j in range(len(l)):
            if l[j] == l[a]:
                if hardest_pos < 0 or d[a][j] > d[a][hardest_pos]: hardest_pos = j
            elif hardest_neg < 0 or d[a][j] < d[a][hardest_neg]: hardest_neg = j
        triplets.append((a, hardest_pos, hardest_neg))
    return torch.tensor(triplets).T


torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(200, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
data = TensorDataset(torch.randn(6400, 200), torch.randint(0, 12, (6400,)))
loader = DataLoader(data, batch_size=200, shuffle=True)
for epoch in range(12):
    for x, y in loader:
        embeddings = F.normalize(net(x), dim=1)
        distances = torch.cdist(embeddings, embeddings)
        a, p, n = mine(distances, y)
        loss = F.relu(distances[a, p] - distances[a, n] + 0.2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
