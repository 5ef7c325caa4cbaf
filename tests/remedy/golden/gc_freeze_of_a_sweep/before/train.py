import torch


def build(rate):
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), lr=rate)


def main():
    for rate in (1e-3, 1e-4):
        model, optimizer = build(rate)
        for epoch in range(3):
            for batch in loader:
                loss = model(batch)
                loss.backward()
                optimizer.step()


main()
