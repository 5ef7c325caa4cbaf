import torch


def train(cfg, model, loader, optimizer):
    mode = cfg["training"]["amp"]
    for x in loader:
        if mode:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x).mean()
        else:
            loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
