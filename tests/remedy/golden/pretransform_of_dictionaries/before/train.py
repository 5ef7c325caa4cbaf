import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset


class Prints(Dataset):
    def __init__(self, layers, scaler=None):
        self.scaler = scaler
        self.sequences = []
        for inputs, targets in layers:
            for i in range(0, len(inputs) - 200, 10):
                self.sequences.append({
                    "inputs": inputs[i : i + 200].copy(),
                    "target": targets[i + 199].copy(),
                })  # one window

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, idx):
        seq = self.sequences[idx]
        inputs = seq["inputs"]
        # as the scaler was fitted
        if self.scaler is not None:
            inputs = self.scaler.transform(inputs)
        return {"inputs": torch.FloatTensor(inputs), "target": torch.FloatTensor(seq["target"])}


def fitted(layers):
    scaler = StandardScaler()
    for inputs, _ in layers:
        scaler.partial_fit(inputs)
    return scaler


def fit(model, optimizer, layers):
    scaler = fitted(layers[2:])
    seen = Prints(layers[:2], scaler)
    for batch in DataLoader(Prints(layers[2:], scaler), batch_size=8):
        loss = model(batch["inputs"], batch["target"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model(seen[0]["inputs"]), scaler.inverse_transform(np.zeros((1, 12)))
