from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __getitem__(self, i):
        return {"image": self.rows[i], "flow": i % 6}


def forward(image, flow=None):
    return image



def fit(rows):
    for batch in DataLoader(Scenes()):
        print(forward(**moved(batch)))
