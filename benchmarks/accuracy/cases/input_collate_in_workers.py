# truth: input/slow-collate | input/too-few-workers
# bottleneck: input
# line: adj|for|degree
"""Molecule graphs: two workers, the batch's block-diagonal matrix is filled in Python."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __init__(self, n=2000, seed=0):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            nodes = int(rng.integers(10, 24))
            edges = rng.integers(0, nodes, (nodes * 10, 2))
            self.items.append((rng.standard_normal((nodes, 8)).astype("f4"), edges, float(nodes)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def block_diagonal(graphs):
    total = sum(len(g[0]) for g in graphs)
    feats = torch.from_numpy(np.concatenate([g[0] for g in graphs]))
    adj = torch.zeros(total, total)
    offset = 0
    for x, edges, _ in graphs:
        for a, b in edges.tolist():
            adj[offset + a, offset + b] = 1.0
            adj[offset + b, offset + a] = 1.0
        offset += len(x)
    degree = adj.sum(1, keepdim=True).clamp(min=1)
    return feats, adj / degree, torch.tensor([g[2] for g in graphs]), [len(g[0]) for g in graphs]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    w1, w2 = torch.nn.Linear(8, 32), torch.nn.Linear(32, 1)
    opt = torch.optim.Adam([*w1.parameters(), *w2.parameters()], 1e-3)
    loader = DataLoader(Graphs(), batch_size=20, shuffle=True, num_workers=2, collate_fn=block_diagonal,
                        persistent_workers=True)
    for epoch in range(2):
        for feats, adj, y, sizes in loader:
            h = torch.relu(w1(adj @ feats))
            out = torch.stack([part.sum() for part in w2(h).squeeze(1).split(sizes)])
            loss = (out - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch", epoch, "mse", loss.item())


if __name__ == "__main__":
    main()
