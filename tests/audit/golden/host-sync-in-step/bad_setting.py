import torch


class Trainer:
    def __init__(self, args, model, optimizer):
        self.args, self.model, self.optimizer = args, model, optimizer

    def epoch(self, loader):
        on_device = "sums" in self.args.parts
        total = torch.zeros((), device="cuda") if on_device else 0.0
        for x in loader:
            loss = self.model(x.cuda()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if on_device:
                total += loss.detach()
            else:
                total += loss.item()
        return total
