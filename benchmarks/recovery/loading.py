"""The five datasets of the prototype (FIELDNOTES 3.5): ``loading.py DATA WORKERS PREFETCH``; steps sleep."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Waiting(Dataset):
    """16 samples of 4 ms to a batch."""

    batch_size = 16

    def __len__(self):
        return 16 * 40

    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.full((8,), float(i))


class Computing(Waiting):
    """16 samples of about a millisecond of computing."""

    def __getitem__(self, i):
        total = 0
        for k in range(15_000):
            total += k & i
        return torch.full((8,), float(total % 7))


class Tiny(Waiting):
    """64 samples in memory."""

    batch_size = 64

    def __len__(self):
        return 64 * 40

    def __getitem__(self, i):
        return torch.full((8,), float(i))


class Large(Waiting):
    """Four samples of 10 MB to a batch."""

    batch_size = 4
    source = torch.zeros(2_500_000)

    def __len__(self):
        return 4 * 40

    def __getitem__(self, i):
        return self.source.clone()


class Heavy(Waiting):
    """Most samples take 1.5 ms, one in 25 takes 60 ms."""

    def __getitem__(self, i):
        time.sleep(0.06 if random.Random(i).random() < 0.04 else 0.0015)
        return torch.full((8,), float(i))


KINDS = {"sleep": Waiting, "cpu": Computing, "tiny": Tiny, "large": Large, "heavy": Heavy}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=KINDS)
    parser.add_argument("workers", type=int)
    parser.add_argument("prefetch", type=int)
    parser.add_argument("--new-workers", action="store_true", help="in each epoch")
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = KINDS[args.data]()
    more = (
        {"prefetch_factor": args.prefetch, "persistent_workers": not args.new_workers} if args.workers else {}
    )
    loader = DataLoader(data, batch_size=data.batch_size, shuffle=True, num_workers=args.workers, **more)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    step = 0
    while step < args.steps:
        for x in loader:
            loss = model(x[:, :8]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.024)
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
