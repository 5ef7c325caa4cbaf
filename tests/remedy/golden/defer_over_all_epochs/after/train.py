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
            total += loss.detach().double()
            if step % 100 == 0:
                print(step, float(total) / step)
            if loss_is_odd(step):
                return step, float(total)
    except KeyboardInterrupt:
        print("stopped at", float(total))
    return step, float(total) / step
