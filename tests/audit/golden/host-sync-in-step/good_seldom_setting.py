import torch


class Trainer:
    def __init__(self, args, model, optimizer):
        self.args, self.model, self.optimizer = args, model, optimizer
        self.wanted = True

    def epoch(self, loader):
        report = False
        for number, x in enumerate(loader):
            loss = self.model(x.cuda()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.args.debug:
                torch.save(loss.item(), "loss.pt")
            if report:
                torch.save(loss.item(), "loss.pt")
            if self.wanted:
                torch.save(loss.item(), "loss.pt")
            if number == 7:
                torch.save(loss.item(), "loss.pt")
            report = number % 100 == 99
            self.wanted = number < 3
