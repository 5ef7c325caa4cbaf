import yaml
from torch.utils.data import DataLoader

with open("config.yaml") as file:
    cfg = yaml.safe_load(file)


def main(dataset, model):
    train_loader = DataLoader(dataset, batch_size=cfg["data"]["batch_size"], shuffle=True, num_workers=2)
    for epoch in range(cfg["epochs"]):
        for batch in train_loader:
            model(batch)
