import torch
import gc


def main():
    gc.collect()
    gc.freeze()
    for epoch in range(3):
        for batch in loader:
            step(batch)


main()
