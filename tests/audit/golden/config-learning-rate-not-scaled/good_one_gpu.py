import torch


def main(cfg, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["optimizer"]["lr"])
    return optimizer, cfg["data"]["samples_per_gpu"]
