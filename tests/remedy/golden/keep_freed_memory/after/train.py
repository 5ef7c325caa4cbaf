import torch
import ctypes
import sys


def main():
    if sys.platform == "linux":  # glibc keeps what a step frees: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
        ctypes.CDLL(None).mallopt(-3, 1 << 30) or ctypes.CDLL(None).mallopt(-3, 32 << 20)
        ctypes.CDLL(None).mallopt(-1, (1 << 31) - 1)
    for epoch in range(3):
        for batch in loader:
            step(batch)


main()
