import argparse

from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--num_workers", type=int, default=8)
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()


def main(dataset, model):
    train_loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
    for epoch in range(args.epochs):
        for batch in train_loader:
            model(batch)
