import torch


def validate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum()
    return correct


def report(model, loader):
    with torch.no_grad():
        print(validate(model, loader))
