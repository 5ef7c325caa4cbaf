from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as file:
            yield from file


loader = DataLoader(Lines("train.txt"), batch_size=8, num_workers=4)
