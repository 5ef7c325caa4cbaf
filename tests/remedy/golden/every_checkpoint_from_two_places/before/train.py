import torch


def save(model, name):
    torch.save(model.state_dict(), name)


def main():
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % 200 == 0:
            save(model, f'{step}.pt')
    save(model, 'last.pt')


if __name__ == '__main__':
    main()
