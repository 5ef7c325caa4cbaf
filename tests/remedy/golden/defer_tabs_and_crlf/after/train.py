import torch
from torch import nn


def train():
	total = 0
	bad = 0
	for images, labels in loader:
		loss = criterion(model(images), labels); loss.backward()
		optimizer.step(); total += loss.detach().double()  # one line
		bad += (labels != model.guess).sum()
	else:
		print("done", int(bad))
	return dict(total=float(total) / len(loader), bad=int(bad), again=total if isinstance(total, int) else float(total))
