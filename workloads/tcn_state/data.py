"""Simulated printing data: MATLAB v7.3 layer files on disk, and the datasets that cut windows out of them.

A layer file is an HDF5 file with a group ``simulation_data``. MATLAB writes columns first, so a signal of
N points is a dataset of shape (1, N). A sample is a window of ``SEQ_LEN`` points; its targets are the state
at the end of the ``PRED_LEN`` points that follow.
"""

import difflib
import glob
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import torch
from scipy.io import loadmat
from sklearn.preprocessing import StandardScaler
from torch.utils.data import Dataset
from tqdm import tqdm

SEQ_LEN, PRED_LEN, STRIDE = 200, 50, 10
SAMPLE_RATE_HZ = 100.0

INPUTS = (
    "x_ref", "y_ref", "z_ref", "vx_ref", "vy_ref", "vz_ref",
    "T_nozzle", "T_interface", "F_inertia_x", "F_inertia_y", "cooling_rate", "layer_num",
)  # fmt: skip
TRAJECTORY = ("error_x", "error_y")
QUALITY = ("adhesion_ratio", "internal_stress", "porosity", "dimensional_accuracy", "quality_score")

#: scale -> (folders, layer files in all, points per file)
SCALES = {"tiny": (2, 4, 600), "cpu": (3, 30, 3000), "full": (5, 455, 2650)}


class DataError(ValueError):
    """The data cannot be what it should be; the message names the file."""


# -- making the files ---------------------------------------------------------------------------------------


def simulate_layer(rng, num_points, layer):
    """Return the signals of one printed layer as a dict of (num_points,) float64 arrays."""
    t = np.arange(num_points) / SAMPLE_RATE_HZ
    fx, fy = rng.uniform(0.05, 0.4, 2)
    x = 60 * np.sin(2 * np.pi * fx * t + rng.uniform(0, 6)) + rng.normal(0, 0.02, num_points)
    y = 60 * np.sin(2 * np.pi * fy * t + rng.uniform(0, 6)) + rng.normal(0, 0.02, num_points)
    z = 0.2 * layer + 0.01 * np.sin(2 * np.pi * 0.5 * t)
    vx, vy, vz = (np.gradient(axis, 1 / SAMPLE_RATE_HZ) for axis in (x, y, z))
    ax, ay = np.gradient(vx, 1 / SAMPLE_RATE_HZ), np.gradient(vy, 1 / SAMPLE_RATE_HZ)
    nozzle = 210 + rng.uniform(-6, 6) + np.cumsum(rng.normal(0, 0.03, num_points))
    cooling = 0.6 + 0.2 * np.sin(2 * np.pi * 0.03 * t + rng.uniform(0, 6))
    interface = 0.55 * nozzle + 40 * np.exp(-cooling) + rng.normal(0, 0.4, num_points)
    speed = np.sqrt(vx**2 + vy**2)
    error_x = 2e-5 * ax + rng.normal(0, 0.002, num_points)
    error_y = 2e-5 * ay + rng.normal(0, 0.002, num_points)
    adhesion = 1 / (1 + np.exp(-(interface - 140) / 6))
    stress = 0.4 * (nozzle - interface) / 60 + 0.02 * cooling
    porosity = np.clip(0.02 + 0.0006 * speed * (1 - adhesion), 0, 1)
    accuracy = np.clip(1 - 4 * np.hypot(error_x, error_y), 0, 1)
    quality = 0.5 * adhesion + 0.3 * accuracy + 0.2 * (1 - porosity)
    return {
        "x_ref": x, "y_ref": y, "z_ref": z, "vx_ref": vx, "vy_ref": vy, "vz_ref": vz,
        "T_nozzle": nozzle, "T_interface": interface, "F_inertia_x": 0.4 * ax, "F_inertia_y": 0.4 * ay,
        "cooling_rate": cooling, "layer_num": np.full(num_points, float(layer)),
        "error_x": error_x, "error_y": error_y,
        "adhesion_ratio": adhesion, "internal_stress": stress, "porosity": porosity,
        "dimensional_accuracy": accuracy, "quality_score": quality,
    }  # fmt: skip


def write_mat(path, signals):
    """Write one v7.3 file: a 512-byte MATLAB header, then HDF5 with one (1, N) dataset per signal."""
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group("simulation_data")
        group.attrs["MATLAB_class"] = np.bytes_("struct")
        for name, values in signals.items():
            dataset = group.create_dataset(name, data=values.reshape(1, -1))
            dataset.attrs["MATLAB_class"] = np.bytes_("double")
    header = (
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Thu Jan  1 00:00:00 2026 HDF5 schema 1.00 ."
    )
    with open(path, "r+b") as file:
        file.write(header.ljust(116) + bytes(8) + b"\x00\x02IM")


def make_data(scale="cpu", seed=0, root=None, sizes=None):
    """Write the layer files of a scale once and return their folder; a finished folder is used again."""
    root = Path(root) if root else Path(__file__).parent / "data"
    folder = root / f"{scale}-seed{seed}"
    if folder.exists():
        return folder
    num_folders, num_files, num_points = sizes or SCALES[scale]
    rng = np.random.default_rng(seed)
    partial = root / f"{folder.name}.{os.getpid()}.partial"
    for layer in tqdm(range(num_files), desc="making data", unit="file", leave=False, disable=None):
        directory = partial / f"data_simulation_{layer % num_folders + 1:02d}"
        directory.mkdir(parents=True, exist_ok=True)
        write_mat(directory / f"layer_{layer + 1:03d}.mat", simulate_layer(rng, num_points, layer + 1))
    try:
        partial.rename(folder)
    except OSError:  # another process finished the same data first
        shutil.rmtree(partial)
    return folder


# -- reading them -------------------------------------------------------------------------------------------


def find_files(pattern):
    """Return the .mat files in every folder that matches the pattern, sorted."""
    files = sorted(f for folder in glob.glob(str(pattern)) for f in glob.glob(os.path.join(folder, "*.mat")))
    if not files:
        raise DataError(f"no .mat files in folders that match {str(pattern)!r}")
    return files


def load_mat(path):
    """Return {signal: (N,) float64 array} of one file, v7.3 (HDF5) or older (scipy)."""
    names = INPUTS + TRAJECTORY + QUALITY
    try:
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                group = file["simulation_data"]
                there = list(group)
                found = {name: np.array(group[name], np.float64) for name in names if name in there}
        else:
            group = loadmat(path, squeeze_me=True, struct_as_record=False)["simulation_data"]
            there = group._fieldnames
            found = {name: np.asarray(getattr(group, name), np.float64) for name in names if name in there}
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except KeyError:
        raise DataError(f"{path} has no group simulation_data") from None
    except Exception as error:  # h5py and scipy raise whatever they stumble over
        raise DataError(f"{path} is truncated or no .mat file: {error}") from None
    if missing := [name for name in names if name not in found]:
        near = difflib.get_close_matches(missing[0], there, n=1)
        hint = f"is {near[0]} it?" if near else f"it has {', '.join(there) or 'none'}"
        raise DataError(f"{path} has no signal {missing[0]}: {hint}")
    return {name: checked(path, name, values, found[names[0]].size) for name, values in found.items()}


def checked(path, name, values, num_points):
    """One signal (N,) of a file: as long as all, and finite as float32."""
    if values.size != num_points or max(values.shape, default=0) != num_points:
        raise DataError(f"{path}: {name} has shape {values.shape}: expected (1, {num_points}), as x_ref has")
    # Neither nan nor what becomes infinite as float32: both would train on without a word.
    if (bad := np.flatnonzero(~(abs(values) <= np.finfo(np.float32).max))).size:
        first = f"{values.flat[bad[0]]:g} at point {bad[0]} the first: mend the file or leave it out"
        raise DataError(f"{path}: {name} has {bad.size} values that are not finite, {first}")
    return values.reshape(-1)


def load_layer(path):
    """Return (inputs (N, 12), trajectory (N, 2), quality (N, 5)) of one file."""
    signals = load_mat(path)
    if (num_points := len(signals[INPUTS[0]])) < SEQ_LEN + PRED_LEN:
        raise DataError(f"{path} has {num_points} points: a window and its target are {SEQ_LEN + PRED_LEN}")
    return tuple(
        np.stack([signals[name] for name in names], axis=1) for names in (INPUTS, TRAJECTORY, QUALITY)
    )


def layers(files):
    """(inputs, trajectory, quality) of one file after the other."""
    for path in tqdm(files, desc="reading", unit="file", leave=False, disable=None):
        yield load_layer(path)


def fit_scaler(files):
    """Fit the input scaler over all training files."""
    scaler = StandardScaler()
    for inputs, _, _ in layers(files):
        scaler.partial_fit(inputs)
    return scaler


class PrinterDataset(Dataset):
    """Windows as the project found them: copied out of the files, normalised one by one when asked for."""

    def __init__(self, files, scaler=None):
        self.scaler = scaler
        self.sequences = []
        for file_index, (inputs, trajectory, quality) in enumerate(layers(files)):
            for i in range(0, len(inputs) - SEQ_LEN - PRED_LEN + 1, STRIDE):
                end = i + SEQ_LEN
                self.sequences.append({
                    "input_features": inputs[i:end].copy(),
                    "trajectory_targets": trajectory[end : end + PRED_LEN].copy(),
                    "error_history": trajectory[i:end].copy(),
                    "quality_sequence": quality[end : end + PRED_LEN].copy(),
                    "quality_targets": quality[end + PRED_LEN - 1].copy(),
                    "file_index": file_index,
                    "start": i,
                })  # fmt: skip

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, idx):
        seq = self.sequences[idx]
        input_features = seq["input_features"]
        if self.scaler is not None:
            input_features = self.scaler.transform(input_features)
        return {
            "input_features": torch.FloatTensor(input_features),
            "trajectory_targets": torch.FloatTensor(seq["trajectory_targets"]),
            "error_history": torch.FloatTensor(seq["error_history"]),
            "quality_sequence": torch.FloatTensor(seq["quality_sequence"]),
            "quality_targets": torch.FloatTensor(seq["quality_targets"]),
            "file_index": seq["file_index"],
            "start": seq["start"],
        }


class PrenormalisedDataset(Dataset):
    """The guide's dataset: the whole file is normalised once, a sample is a view of it.

    ``cache_data`` holds every field as a tensor from the start instead of wrapping it when asked for.
    """

    def __init__(self, files, scaler, cache_data=False):
        self.cache_data = cache_data
        self.sequences = []
        for file_index, (inputs, trajectory, quality) in enumerate(layers(files)):
            inputs = scaler.transform(inputs).astype(np.float32)
            trajectory, quality = trajectory.astype(np.float32), quality.astype(np.float32)
            for i in range(0, len(inputs) - SEQ_LEN - PRED_LEN + 1, STRIDE):
                end = i + SEQ_LEN
                arrays = {
                    "input_features": inputs[i:end],
                    "trajectory_targets": trajectory[end : end + PRED_LEN],
                    "error_history": trajectory[i:end],
                    "quality_sequence": quality[end : end + PRED_LEN],
                    "quality_targets": quality[end + PRED_LEN - 1],
                }
                sample = {k: torch.from_numpy(v) for k, v in arrays.items()} if cache_data else arrays
                self.sequences.append((sample, file_index, i))

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, idx):
        sample, file_index, start = self.sequences[idx]
        if not self.cache_data:
            sample = {k: torch.from_numpy(v) for k, v in sample.items()}
        return {**sample, "file_index": file_index, "start": start}


class GatheredDataset(Dataset):
    """All points in one float32 tensor, normalised at once; a batch is one gather of overlapping windows.

    ``to(device)`` moves the points (not the windows): the full set is 58 MB.
    """

    def __init__(self, files, scaler):
        try:
            from hotloop.feed import pretransform
        except ImportError:
            raise DataError("gather needs hotloop.feed: pip install hotloop, or --ablate gather") from None
        inputs, quality, starts, offset = [], [], [], 0
        for layer_inputs, _, layer_quality in layers(files):
            inputs.append(layer_inputs)
            quality.append(layer_quality.astype(np.float32))
            starts.append(offset + np.arange(0, len(layer_inputs) - SEQ_LEN - PRED_LEN + 1, STRIDE))
            offset += len(layer_inputs)
        self.starts = torch.from_numpy(np.concatenate(starts))
        self.quality = torch.from_numpy(np.concatenate(quality))
        # Checked against the scaler's own result for single points, bit for bit.
        points = pretransform(np.concatenate(inputs), scaler, dtype=np.float32)
        self._set_points(torch.from_numpy(points))

    def _set_points(self, points):
        self.points = points
        self.windows = points.unfold(0, SEQ_LEN, 1).transpose(1, 2)  # (N - SEQ_LEN + 1, SEQ_LEN, 12), a view

    def to(self, device):
        self.starts, self.quality = self.starts.to(device), self.quality.to(device)
        self._set_points(self.points.to(device))
        return self

    def __len__(self):
        return len(self.starts)

    def __getitems__(self, indices):
        starts = self.starts[torch.as_tensor(indices, device=self.starts.device)]
        return {
            "input_features": self.windows[starts],
            "quality_targets": self.quality[starts + SEQ_LEN + PRED_LEN - 1],
        }

    def __getitem__(self, idx):
        return {name: values[0] for name, values in self.__getitems__([idx]).items()}
