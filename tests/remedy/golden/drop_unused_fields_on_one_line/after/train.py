from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, i):
        row = self.rows[i]
        return {"image": row[1], "label": i % 6}


def fit(rows):
    for batch in DataLoader(Scenes(rows)):
        print(batch["image"], batch["label"])
