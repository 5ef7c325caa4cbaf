import torch


def main(cfg, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["optimizer"]["lr"] * cfg["data"]["batch_size"] / 16)
    return optimizer, cfg["data"]["batch_size"]
