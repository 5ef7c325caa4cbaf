import torch
from torch import nn
from tqdm import tqdm


class Trainer:
    def __init__(self, model, loader, device):
        self.model = model.to(device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.loader = loader
        self.device = device

    def epoch(self, number):
        for step, (images, (labels, names)) in enumerate(
            tqdm(self.loader, desc=f'epoch {number}')
        ):
            count = images.shape[0]
            with torch.autograd.profiler.record_function('copy'):
                images = images.to(self.device)  # float32
            loss = nn.functional.cross_entropy(self.model(images), labels[0].to(self.device, torch.long))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(step, loss.item() / count)
