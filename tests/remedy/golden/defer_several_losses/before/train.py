import torch
from torch import nn


def main():
    sums = None
    total = total_a = total_b = 0.
    hits: int = 0
    for images, labels in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            a, b = model(images, labels)
        loss = a + 0.5 * b
        loss.backward()
        optimizer.step()
        total_a += a.item() * args.weight
        total_b += b.detach().item()
        total += loss.data.item() + b.item()
        with torch.no_grad():
            hits += int((model.head(images) > 0)
                        .sum())
    print("%.3f %.3f %.3f" % (total_a, total_b, total))
    total_a /= len(loader) * 2
    if hits:
        print(hits, float(hits) / len(loader), f"{total_a}")
    return {"a": total_a, "b": total_b, "total": total}
