import torch
import yaml


def main():
    with open('a.yaml') as stream:
        cfg = yaml.safe_load(stream)
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % (cfg['every'] * 4) == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
