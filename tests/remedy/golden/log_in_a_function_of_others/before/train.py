import torch


def log(name, value, step):
    writer.add_scalar(name, value, step)


def main():
    for epoch in range(3):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            log('loss', loss.item(), step)
        log('accuracy', evaluate(model), epoch)


if __name__ == '__main__':
    main()
