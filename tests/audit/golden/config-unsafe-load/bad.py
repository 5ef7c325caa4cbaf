import torch

state = torch.load("best.pt", weights_only=False)
