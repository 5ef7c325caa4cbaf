import torch


class Averages:
    def __init__(self, params, rate=0.01):
        self.kept = [p.detach().clone() for p in params]
        self.rate = rate

    @torch.no_grad()
    def update(self, params):
        for kept, param in zip(self.kept, params):
            if param.requires_grad:
                kept.sub_(self.rate * (kept - param))
            else:
                kept.copy_(param)
