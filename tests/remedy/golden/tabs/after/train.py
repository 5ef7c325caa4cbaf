import torch
from torch.utils.data import DataLoader

def make():
	return DataLoader(
		data,
		batch_size=8,
		num_workers=4,
	)

loader = make()
