import torch


class Step:
    def __init__(self, config, model):
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.prepare(config)

    def prepare(self, config):
        self.lr_config = config.get("lr_config")


class Scheduled(Step):
    def prepare(self, config):
        self.scheduler = scheduled(config, self.optimizer)


def scheduled(config, optimizer):
    return torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=config["lr_config"]["warmup_iters"])


def main(config, model, fast):
    step = (Scheduled if fast else Step)(config, model)
    return step, None if fast else scheduled(config, step.optimizer)
