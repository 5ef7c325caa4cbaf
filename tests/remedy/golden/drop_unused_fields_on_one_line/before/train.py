from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, i):
        row = self.rows[i]
        return {"first": row[0], "image": row[1], "mask": row[2] > 0.5, "label": i % 6, "depth": (row[3]), "at": i}


def fit(rows):
    for batch in DataLoader(Scenes(rows)):
        print(batch["image"], batch["label"])
