import torch


def main():
    for epoch in range(3):
        step = 0
        for batch in loader:
            loss = model(batch)
            loss.backward()
            step += 1
            if step % 50 == 0:
                evaluate(model)


if __name__ == '__main__':
    main()
