# truth: input/single-process | input/slow-sample | input/per-sample-conversion
# bottleneck: input
# line: scaler\.transform
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset

np.random.seed(1)
torch.manual_seed(1)
torch.set_num_threads(1)
signals = np.random.randn(6000, 64, 9)
labels = (signals[:, :, 0].mean(1) > 0).astype(np.int64)
scaler = StandardScaler().fit(signals.reshape(-1, 9))


class Windows(Dataset):
    def __len__(self):
        return len(signals)

    def __getitem__(self, idx):
        x = scaler.transform(signals[idx])
        return {"x": torch.tensor(x, dtype=torch.float32), "y": labels[idx]}


loader = DataLoader(Windows(), batch_size=64, shuffle=True)
net = torch.nn.GRU(9, 16, batch_first=True)
head = torch.nn.Linear(16, 2)
opt = torch.optim.Adam(list(net.parameters()) + list(head.parameters()), 1e-3)
for epoch in range(5):
    for batch in loader:
        out, _ = net(batch["x"][:, ::8])
        loss = torch.nn.functional.cross_entropy(head(out[:, -1]), batch["y"])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, float(loss))
