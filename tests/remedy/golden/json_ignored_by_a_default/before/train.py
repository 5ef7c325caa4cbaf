import json

from torch.utils.data import DataLoader


def get_loader(batch_size, num_workers=0):
    return DataLoader(data, batch_size, num_workers=num_workers)


def main():
    conf = json.load(open("conf.json"))
    return get_loader(conf["data"]["batch_size"])


main()
