import torch
import yaml

cfg = yaml.safe_load(open('a.yaml'))
torch.backends.cudnn.benchmark = cfg['cudnn_benchmark']
