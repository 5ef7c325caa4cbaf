import torch
import ctypes
import sys


def train_epoch(model, optimizer, epoch):
    model.train()
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()


def main():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    epoch = 0
    if sys.platform == "linux":  # glibc keeps what a step frees: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
        ctypes.CDLL(None).mallopt(-3, 1 << 30) or ctypes.CDLL(None).mallopt(-3, 32 << 20)
        ctypes.CDLL(None).mallopt(-1, (1 << 31) - 1)
    while epoch < 3:
        train_epoch(model, optimizer, epoch)
        epoch += 1


if __name__ == "__main__":
    main()
