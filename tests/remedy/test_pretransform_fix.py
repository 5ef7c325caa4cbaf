"""``hotloop fix --apply pretransform``: the whole is transformed once, and every batch stays bit for bit."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from test_fix import hotloop

preprocessing = pytest.importorskip("sklearn.preprocessing")

#: Windows of an array by a scaler, rows by a mean, and dictionaries under an ``if``: one run of each.
HEAD = """
    import hashlib, os, sys
    import numpy as np
    import torch
    from sklearn.preprocessing import StandardScaler
    from torch.utils.data import DataLoader, Dataset
"""
ENDS = """
    def train(dataset):
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        seen = hashlib.sha256()
        for epoch in range(2):
            for x, y in DataLoader(dataset, batch_size=8, shuffle=True):
                seen.update(str((x.dtype, x.stride(), y.dtype)).encode())
                seen.update(x.numpy().tobytes() + y.numpy().tobytes())
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x.float()).mean((1, 2))[:, None], y.float()).backward()
                optimizer.step()
        print(seen.hexdigest())


    rng = np.random.default_rng(0)
    data = rng.normal(3.0, 40.0, (400, 6)).astype(os.environ.get("DTYPE", "float64"))
    train(made(data))
"""
ARRAY = """
    class Windows(Dataset):
        def __init__(self, data, scaler, length=20):
            self.data, self.scaler, self.length = data, scaler, length

        def __len__(self):
            return len(self.data) - self.length

        def __getitem__(self, i):
            window = self.scaler.transform(self.data[i : i + self.length])
            return torch.from_numpy(window), torch.tensor([float(i)])


    def made(data):
        return Windows(data, StandardScaler().fit(data[:100]))
"""
TENSOR = """
    class Clips(Dataset):
        def __init__(self, clips):
            self.clips = clips
            self.mean, self.std = clips.mean((0, 1)), clips.std((0, 1))

        def __len__(self):
            return self.clips.shape[0]

        def __getitem__(self, i):
            clip = self.clips[i]
            clip = (clip - self.mean) / (self.std + 1e-6)
            return clip, torch.tensor([float(i)])


    def made(data):
        return Clips(torch.from_numpy(data).view(100, 4, 6))
"""
ITEMS = """
    class Prints(Dataset):
        def __init__(self, layers, scaler=None):
            self.scaler = scaler
            self.sequences = []
            for inputs in layers:
                for i in range(0, len(inputs) - 20, 5):
                    self.sequences.append({"inputs": inputs[i : i + 20].copy(), "target": inputs[i + 20, :1]})

        def __len__(self):
            return len(self.sequences)

        def __getitem__(self, idx):
            seq = self.sequences[idx]
            inputs = seq["inputs"]
            if self.scaler is not None:
                inputs = self.scaler.transform(inputs)
            return torch.FloatTensor(inputs), torch.FloatTensor(seq["target"])


    def made(data):
        scaler = StandardScaler()
        scaler.partial_fit(data[:200])
        return Prints([data[:200], data[200:]], scaler)
"""


def written(*parts: str) -> str:
    return "\n\n".join(dedent(part).strip() for part in parts) + "\n"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (ARRAY, "self.data = self.scaler.transform(self.data)"),
        (TENSOR, "self.clips = (self.clips - self.mean) / (self.std + 1e-6)"),
        (ITEMS, 'one["inputs"] = self.scaler.transform(one["inputs"])'),
    ],
    ids=["array", "tensor", "items"],
)
def test_a_script_gives_the_same_batches_with_the_whole_transformed_once(
    tmp_path: Path, script: str, line: str
) -> None:
    train = tmp_path / "train.py"
    train.write_text(written(HEAD, script, ENDS))
    observed = hotloop("run", "--out", "run", "--", sys.executable, "train.py", cwd=tmp_path)
    assert observed.returncode == 0, observed.stderr
    done = hotloop("fix", "run", "--apply", "pretransform", "--no-check", "--write", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert line in train.read_text(), done.stderr
    before = next(text for text in observed.stdout.splitlines() if len(text) == 64)
    assert _printed(tmp_path) == before
    for dtype in ("float32", "int16") if script is ARRAY else ():
        after = _printed(tmp_path, DTYPE=dtype)
        train.write_text(written(HEAD, script, ENDS))
        assert _printed(tmp_path, DTYPE=dtype) == after
        hotloop("fix", "run", "--apply", "pretransform", "--no-check", "--write", cwd=tmp_path)


def _printed(folder: Path, **env: str) -> str:
    words = [sys.executable, "train.py"]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize(
    "name",
    ["StandardScaler", "StandardScaler(with_mean=False)", "MinMaxScaler", "MinMaxScaler(clip=True)",
     "RobustScaler", "RobustScaler(unit_variance=True)", "MaxAbsScaler"],
)  # fmt: skip
def test_rows_come_out_of_a_scaler_among_others_as_they_do_alone(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    data = np.abs(rng.normal(20.0, 40.0, (5000, 7))).clip(0, 200).astype(dtype)
    if data.dtype.kind == "f":
        data[::17, 3], data[5, 2], data[:, 6] = np.nan, -0.0, 1e-42  # denormal where it is float32
    scaler = eval(
        f"preprocessing.{name}{'' if name.endswith(')') else '()'}", {"preprocessing": preprocessing}
    )
    scaler.fit(data[:3000])
    whole = scaler.transform(data)
    for begin, length in ((0, 1), (1, 1), (3, 7), (11, 64), (4000, 1000)):
        part = scaler.transform(data[begin : begin + length])
        assert part.dtype == whole.dtype and part.strides == whole.strides
        assert part.tobytes() == whole[begin : begin + length].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("kind", ["numpy", "torch", "number"])
def test_arithmetic_on_the_whole_is_that_on_its_parts(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    data = np.abs(rng.normal(20.0, 40.0, (3000, 5, 3))).clip(0, 200).astype(dtype)
    mean, std = data.mean((0, 1)), data.std((0, 1))
    held, by = data, (mean, std)
    if kind == "torch":
        held, by = torch.from_numpy(data), (torch.from_numpy(mean), torch.from_numpy(std))
    if kind == "number":
        by = (float(mean[0]), float(std[0]))
    whole = (held - by[0]) / (by[1] + 1e-8)
    for i in (0, 1, 1234, 2999):
        part = (held[i] - by[0]) / (by[1] + 1e-8)
        assert part.dtype == whole.dtype
        assert _digest(part) == _digest(whole[i])


def _digest(values: object) -> str:
    return hashlib.sha256(np.ascontiguousarray(np.asarray(values)).tobytes()).hexdigest()
