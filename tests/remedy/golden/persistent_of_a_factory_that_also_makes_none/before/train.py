from torch.utils.data import DataLoader


def make(dataset, options):
    if options["train"]:
        arguments = dict(batch_size=8, num_workers=options["workers"])
    else:
        arguments = dict(batch_size=1, num_workers=0)
    return DataLoader(dataset, **arguments)


train = make(data, {"train": True, "workers": 2})
val = make(other, {"train": False})
