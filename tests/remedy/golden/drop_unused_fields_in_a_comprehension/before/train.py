from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __getitem__(self, i):
        return {"image": self.rows[i], "flow": i % 6}



def fit(rows):
    for batch in DataLoader(Scenes()):
        inputs = {k: v.to(device) for k, v in batch.items()}
        print(model(**inputs))
