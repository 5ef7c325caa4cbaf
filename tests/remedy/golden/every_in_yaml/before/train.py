import torch

import yaml


def evaluate(net):
    net.eval()
    net.train()


def main():
    with open('a.yaml') as stream:
        cfg = yaml.safe_load(stream)
    Trainer(cfg['eval']['every']).run(cfg)


class Trainer:
    def __init__(self, every):
        self.every = every

    def run(self, cfg):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            if step % cfg['log']['every'] == 0:
                print(step)
            if step % self.every == 0:
                evaluate(model)


if __name__ == '__main__':
    main()
