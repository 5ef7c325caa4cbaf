import torch
from torch import nn


def train(epochs):
    step, total = 0, 0.0
    try:
        while step < 1000:
            images, labels = next(batches)
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            total += loss.item()
            if step % 100 == 0:
                print(step, total / step)
            if loss_is_odd(step):
                return step, total
    except KeyboardInterrupt:
        print("stopped at", total)
    return step, total / step
