import torch
from torch import nn


def train(model, loader, optimizer, device):
    for x, y in loader:
        x = x.to(device)
        y = y.to(device, dtype=torch.long)
        # forward
        out = model(x)
        loss = nn.functional.cross_entropy(
            out, y,
        )

        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def main():
    model = nn.Linear(4, 2)
    model = model.to('cuda')
    settings = {'lr': 1e-3, 'fused': False}
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    train(model, loader, optimizer, 'cuda')


if __name__ == '__main__':
    main()
