import yaml
from torch.utils.data import DataLoader

with open("base.yaml") as stream:
    data = yaml.safe_load(stream)["data"]
train = DataLoader(a, batch_size=data["batch_size"], num_workers=data["num_workers"])
val = DataLoader(b, num_workers=data["num_workers"])
other = DataLoader(b, num_workers=data["other"]["num_workers"])
