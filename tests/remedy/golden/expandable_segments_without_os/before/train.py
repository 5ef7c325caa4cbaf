#!/usr/bin/env python
# A script of ours.
from helpers import seed
import json
import torch

seed(0)
print(torch.zeros(1), json)
