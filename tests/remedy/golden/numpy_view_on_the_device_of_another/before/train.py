import torch


def masks(lengths, device):
    """A mask on the device that the model is on."""
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.bool, device=device)
    for row, length in enumerate(lengths):
        for col in range(length):
            if col % 7 == 6:
                continue
            mask[row, col] = True
    return ~mask
