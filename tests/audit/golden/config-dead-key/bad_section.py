import torch


def main(config, model, loader):
    for number, batch in enumerate(loader):
        model(batch).sum().backward()
        if number % config["evaluation.interval"] == 0:
            torch.save(model, "model.pt")
