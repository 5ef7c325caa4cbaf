import torch


def main():
    for epoch in range(30):
        for batch in loader:
            loss = model(batch)
            loss.backward()
        if (epoch + 1) % 10 == 0:
            torch.save(model.state_dict(), f'{epoch}.pt')


if __name__ == '__main__':
    main()
