import torch
from torch import nn

scaler = torch.amp.GradScaler("cuda")


def train(model, loader, optimizer, device, metric, criterion):
    for x, y in loader:
        x = x.to(device)
        y = y.to(device)
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            probabilities = out.sigmoid()
            wide = out.float()
            task = criterion(out, y)
            loss = task + 0.1 * wide.square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        metric.update(probabilities, y)
        print(task.item(), wide.detach().cpu().numpy(), out.shape, out.argmax(1))
        out = model.head(x)
        print(out.detach().numpy())


def main():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, loader, optimizer, 'cuda')


if __name__ == '__main__':
    main()
