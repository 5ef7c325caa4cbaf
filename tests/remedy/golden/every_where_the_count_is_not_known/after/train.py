import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    for epoch in range(3):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            if step > 0 and step % 200 == 0:  # not at once
                accuracy = evaluate(model)
                print(accuracy)


if __name__ == '__main__':
    main()
