from accelerate import Accelerator
import torch
from torch.utils.data import DataLoader

accelerator = Accelerator()
loader = DataLoader(data, batch_size=8)
model, loader = accelerator.prepare(model, loader)
