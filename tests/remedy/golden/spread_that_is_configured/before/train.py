from functools import partial

import yaml
from torch.utils.data import DataLoader


def make_loader(dataset, options, phase):
    if phase == "train":
        workers = options["num_worker_per_gpu"] * options.get("gpus", 1)
        arguments = dict(dataset=dataset, batch_size=4, shuffle=True, num_workers=workers)
    else:
        arguments = dict(dataset=dataset, batch_size=1, num_workers=0)
    arguments["worker_init_fn"] = partial(seed_worker, 3)
    return DataLoader(**arguments)


with open("options.yml") as stream:
    options = yaml.safe_load(stream)["datasets"]
train = make_loader(Images(options["train"]), options["train"], "train")
val = make_loader(Images(options["val"]), options["val"], "val")
