import torch


def update(averages, params, decay=0.99):
    for average, param in zip(averages, params):
        average.mul_(decay).add_(param, alpha=1 - decay)
