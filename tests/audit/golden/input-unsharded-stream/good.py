from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        info = get_worker_info()
        with open(self.path) as file:
            for number, line in enumerate(file):
                if number % info.num_workers == info.id:
                    yield line


loader = DataLoader(Lines("train.txt"), batch_size=8, num_workers=4)
