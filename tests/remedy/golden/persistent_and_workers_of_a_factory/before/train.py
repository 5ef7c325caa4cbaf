from torch.utils.data import DataLoader


def make(dataset):
    return DataLoader(dataset, 8, num_workers=0)


train = make(data)
val = make(other)
