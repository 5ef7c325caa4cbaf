import torch


@torch.no_grad()
def momentum_update(query, key, m=0.999):
    for q, k in zip(query.parameters(), key.parameters()):
        k.data = k.data * m + q.data * (1.0 - m)
