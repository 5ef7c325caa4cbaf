import torch

state = torch.load("best.pt")
