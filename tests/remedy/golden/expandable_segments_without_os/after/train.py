#!/usr/bin/env python
# A script of ours.
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

from helpers import seed
import json
import torch

seed(0)
print(torch.zeros(1), json)
