import torch


def update(averages, params, decay):
    for average, param in zip(averages, params):
        average.mul_(decay).add_(param, alpha=1 - decay)
