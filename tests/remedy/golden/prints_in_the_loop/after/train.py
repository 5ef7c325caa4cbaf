import torch


def main():
    print('begin')
    for step in range(steps):
        loss = model(next(batches))
        loss.backward()
        if loss.isnan():
            print('loss is nan at', step)
            break
        if step % 50 == 0:
            print('step', step, loss.item())
            for name, p in model.named_parameters():
                print(name, p.data)
        print(step, file=ledger)
        if step % 100 == 0:
            print('saved')


if __name__ == '__main__':
    main()
