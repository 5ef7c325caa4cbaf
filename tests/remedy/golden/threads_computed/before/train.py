import sys

import torch

torch.set_num_threads(int(sys.argv[1]))
