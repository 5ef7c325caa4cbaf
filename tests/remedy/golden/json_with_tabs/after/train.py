import json
import torch
from torch.utils.data import DataLoader

config = json.load(open('c.json'))
loader = DataLoader(data, num_workers=config['loader']['workers'])
