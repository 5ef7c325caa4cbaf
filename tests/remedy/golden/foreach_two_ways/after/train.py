import torch


class Averages:
    def __init__(self, params, rate=0.01):
        self.kept = [p.detach().clone() for p in params]
        self.rate = rate

    @torch.no_grad()
    def update(self, params):
        every_round = list(zip(self.kept, params))
        pairs = [(kept, param) for kept, param in every_round if param.requires_grad]
        if pairs:
            kepts, param_list = zip(*pairs)
            torch._foreach_lerp_(kepts, param_list, self.rate)
        pair_list = [
            (kept, param)
            for kept, param in every_round
            if not param.requires_grad
        ]
        if pair_list:
            kept_list, params_2 = zip(*pair_list)
            torch._foreach_copy_(kept_list, params_2)
