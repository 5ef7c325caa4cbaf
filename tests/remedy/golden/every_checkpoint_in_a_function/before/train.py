import torch


def save(model, step):
    state = model.state_dict()
    torch.save(state, f'{step}.pt')


def main():
    for step, batch in enumerate(loader):
        record.save(model, batch)
        loss = model(batch)
        loss.backward()
        if rank == 0:
            if step % 200 == 0: save(model, step)


if __name__ == '__main__':
    main()
