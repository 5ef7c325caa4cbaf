import ctypes

import torch

ctypes.CDLL("libc.so.6").mallopt(-4, 0)


def main():
    for epoch in range(3):
        for batch in loader:
            step(batch)


main()
