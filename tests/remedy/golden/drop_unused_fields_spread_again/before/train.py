from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __getitem__(self, i):
        return {"image": self.rows[i], "flow": i % 6}



def fit(rows):
    for batch in DataLoader(Scenes()):
        inputs = {**batch, "step": 1}
        print(model(**inputs))
