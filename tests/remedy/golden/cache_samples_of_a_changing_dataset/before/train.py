from torch.utils.data import DataLoader

loader = DataLoader(data, 16, shuffle=True)
for epoch in range(9):
    data.transform.size = 16 + epoch
