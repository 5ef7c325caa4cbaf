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
        total_a += a.detach().double() * args.weight
        total_b += b.detach().double()
        total += loss.data.double() + b.detach().double()
        with torch.no_grad():
            hits += ((model.head(images) > 0)
                        .sum()).long()
    print("%.3f %.3f %.3f" % (float(total_a), float(total_b), float(total)))
    total_a = float(total_a) / (len(loader) * 2)
    if int(hits):
        print(int(hits), float(hits) / len(loader), f"{total_a}")
    return {"a": total_a, "b": float(total_b), "total": float(total)}
