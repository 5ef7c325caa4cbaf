from torch.utils.data import DataLoader


def train(labels, pictures, step):
    quick = DataLoader(labels, batch_size=8)
    slow = DataLoader(pictures, batch_size=8, num_workers=2)
    for y, x in zip(quick, slow):
        step(x, y)
