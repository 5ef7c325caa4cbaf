import torch


def batch(rows):
    return torch.stack([
        torch.tensor(
            row,
            dtype=torch.float32,  # the sensor sends doubles
        )
        for row in rows
    ])
