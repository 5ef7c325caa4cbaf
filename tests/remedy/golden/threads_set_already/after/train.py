import torch

THREADS = 2
torch.set_num_threads(THREADS)
