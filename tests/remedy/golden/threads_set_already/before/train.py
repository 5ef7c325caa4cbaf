import torch

THREADS = 24
torch.set_num_threads(THREADS)
