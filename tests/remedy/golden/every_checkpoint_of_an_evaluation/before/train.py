import torch


def evaluate(net):
    return net(images)


def main():
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % 50 == 0:
            accuracy = evaluate(model)
            if accuracy > best:
                torch.save(model.state_dict(), 'best.pt')


if __name__ == '__main__':
    main()
