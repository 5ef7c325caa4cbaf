from torch.utils.data import DataLoader

loader = DataLoader(data, 16, shuffle=True)
for x, y, i in loader:
    data.difficulty[i.numpy()] = step(x, y)
