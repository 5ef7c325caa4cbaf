import torch


async def batch(rows):
    return torch.stack([torch.tensor(await row) for row in rows])
