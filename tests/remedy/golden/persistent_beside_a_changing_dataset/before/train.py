from torch.utils.data import DataLoader

loader = DataLoader(data, 16, num_workers=2)
for epoch in range(9):
    data.crop = 16 + epoch
