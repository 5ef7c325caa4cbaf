import numpy as np
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_sampler=Classes(labels), num_workers=2)
for images, labels in loader:
    mixed = np.random.beta(0.4, 0.4)
