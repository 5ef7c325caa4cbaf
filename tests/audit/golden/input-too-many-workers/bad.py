import os
from torch.utils.data import DataLoader


def main(dataset, model):
    train_loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=os.cpu_count())
    for epoch in range(10):
        for batch in train_loader:
            model(batch)
