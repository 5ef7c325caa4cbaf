# truth: host/python-in-step
# bottleneck: host
# line: roc_auc_score|average_precision_score|f1_score|metrics
# not: input/single-process | input/slow-sample | cadence/logging
"""Full scikit-learn metrics on every training batch."""
import numpy as np
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def batch_metrics(logits, labels):
    scores = torch.sigmoid(logits).detach().numpy()
    truth = labels.numpy().astype(int)
    return {
        "auc": np.mean([roc_auc_score(truth[:, k], scores[:, k]) for k in range(truth.shape[1])]),
        "ap": np.mean([average_precision_score(truth[:, k], scores[:, k]) for k in range(truth.shape[1])]),
        "f1": f1_score(truth, scores > 0.5, average="macro", zero_division=0),
    }


class MultiLabel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(50, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, x):
        return self.net(x)


features = torch.randn(4096, 50)
labels = (features[:, :8] + 0.5 * torch.randn(4096, 8) > 0).float()
model, loss_fn = MultiLabel(), nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
train_loader = DataLoader(TensorDataset(features, labels), batch_size=128, shuffle=True)
history = []
for epoch in range(5):
    for inputs, target in train_loader:
        optimizer.zero_grad()
        logits = model(inputs)
        loss = loss_fn(logits, target)
        loss.backward()
        optimizer.step()
        history.append(batch_metrics(logits, target))
    print(epoch, {k: round(float(np.mean([h[k] for h in history[-32:]])), 3) for k in history[0]})
