import torch


@torch.no_grad()
def momentum_update(query, key, m=0.999):
    rounds = [(k.data, q.data, k) for q, k in zip(query.parameters(), key.parameters())]
    if rounds:
        ks, qs, k_list = zip(*rounds)
        values = torch._foreach_add(
            torch._foreach_mul(ks, m), torch._foreach_mul(qs, 1.0 - m)
        )
        for k, value in zip(k_list, values):
            k.data = value
