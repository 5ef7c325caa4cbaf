# truth: input/repeated-work | input/slow-sample | input/single-process | input/too-few-workers
# bottleneck: input
# line: rfft|spectrogram|log1p|frames
"""The same 96 recordings turned into the same spectrograms in each of many epochs."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng(11)
WAVES = [rng.standard_normal(48_000) for _ in range(96)]


def spectrogram(wave, n=1024, hop=128):
    frames = np.lib.stride_tricks.sliding_window_view(wave, n)[::hop]
    spec = np.abs(np.fft.rfft(frames * np.hanning(n), axis=1)) ** 2
    return np.log1p(spec).astype(np.float32)


class Spectrograms(Dataset):
    def __len__(self):
        return len(WAVES)

    def __getitem__(self, i):
        return torch.from_numpy(spectrogram(WAVES[i])), i % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Spectrograms(), batch_size=8, num_workers=1, persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool1d(16), torch.nn.Flatten(), torch.nn.LazyLinear(4))
    model(torch.zeros(1, 368, 513))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(14):
        for x, y in loader:
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        print("epoch", epoch, loss.item())


if __name__ == "__main__":
    main()
