import argparse

import torch
from torch.utils.data import DataLoader

WORKERS = 4


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--num-workers', type=int, default=WORKERS, help='how many')
    parser.add_argument('--lr', type=float, default=0.1)
    return parser.parse_args()


def main(args):
    return DataLoader(data, num_workers=args.num_workers)


main(get_args())
