import torch


def draw(heat, radius):
    for y in range(radius):
        for x in range(radius):
            heat[y, x] = 1.0


def main():
    heat = torch.zeros(8, 8)
    draw(heat, 3)
