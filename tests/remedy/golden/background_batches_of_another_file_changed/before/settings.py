import torch

frames = torch.arange(8000.0).reshape(1000, 8)
