from torch.utils.data import DataLoader

loader = DataLoader(stream, batch_size=8)
