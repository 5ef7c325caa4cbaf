import torch


def main():
    for epoch in range(3):
        for batch in loader:
            step(batch)


main()
