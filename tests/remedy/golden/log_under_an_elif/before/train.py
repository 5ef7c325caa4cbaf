import torch


def main():
    for i, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if loss > 100: print('large')
        elif rank == 0: writer.add_scalar('loss', loss, i)


if __name__ == '__main__':
    main()
