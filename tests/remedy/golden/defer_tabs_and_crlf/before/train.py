import torch
from torch import nn


def train():
	total = 0
	bad = 0
	for images, labels in loader:
		loss = criterion(model(images), labels); loss.backward()
		optimizer.step(); total += loss.item()  # one line
		bad += int((labels != model.guess).sum())
	else:
		print("done", bad)
	return dict(total=total / len(loader), bad=bad, again=total)
