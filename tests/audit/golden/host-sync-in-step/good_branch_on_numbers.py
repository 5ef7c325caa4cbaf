import torch


def fraction(counts):
    return counts["good"] / counts["all"]


def weigh(loss, counts):
    share = fraction(counts)
    missing = counts["all"] - counts["good"]
    if share < 0.5 or missing > 10:
        return 2 * loss
    return torch.relu(loss)


def train(model, loader, optimizer, counts):
    for x in loader:
        loss = weigh(model(x.cuda()).mean(), counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
