from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, i):
        return self.rows[i][0], self.rows[i][1]


def fit(rows):
    for image, flow in DataLoader(Scenes(rows)):
        print(image)
