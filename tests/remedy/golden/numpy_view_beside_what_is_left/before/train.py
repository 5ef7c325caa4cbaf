import torch


def collate(samples):
    weights = torch.zeros(len(samples), 20)
    mask = torch.zeros(len(samples), 20)
    for row, sample in enumerate(samples):
        for col, weight in enumerate(sample):
            weights[row, col] = weight
            mask[row, col] = 1
    return weights, mask
