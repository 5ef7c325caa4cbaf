from torch.utils.data import DataLoader


def build(dataset, **kwargs):
    kwargs.setdefault("num_workers", 0)
    return DataLoader(dataset, **kwargs)


train = build(data, shuffle=True)
val = build(other)
