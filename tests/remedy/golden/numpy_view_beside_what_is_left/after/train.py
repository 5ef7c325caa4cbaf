import torch


def collate(samples):
    weights = torch.zeros(len(samples), 20)
    mask = torch.zeros(len(samples), 20)
    mask_np = mask.numpy()
    for row, sample in enumerate(samples):
        for col, weight in enumerate(sample):
            weights[row, col] = weight
            mask_np[row, col] = 1
    return weights, mask
