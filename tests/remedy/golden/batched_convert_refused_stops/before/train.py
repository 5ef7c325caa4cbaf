import torch


class Stream:
    def __init__(self, rows):
        self.rows = iter(rows)

    def read(self):
        return next(self.rows)

    def batch(self):
        return torch.stack([torch.tensor(self.read()) for _ in range(32)])  # each
