"""What an expert with an afternoon would change in each planted case: pieces of text, and what replaces them.

Expert cures are not limited to what ``tune`` can do: where the right thing is an edit of the user's code they
make it, and the row shows what is left on the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cure:
    """``edits`` of a script's text; ``by``: "settings", or "code" where no remedy could have done it live."""

    edits: tuple[tuple[str, str], ...]
    by: str = "settings"

    def applied(self, source: str) -> str:
        """The cured source. Raises ValueError where the script is no longer what the cure was made for."""
        for old, new in self.edits:
            if source.count(old) != 1:
                raise ValueError(f"{old!r} is there {source.count(old)} times")
            source = source.replace(old, new)
        return source


def _settings(old: str, new: str) -> Cure:
    return Cure(edits=((old, new),))


def _code(*edits: tuple[str, str]) -> Cure:
    return Cure(edits=edits, by="code")


def _remembered(get: str, line: str, value: str, *more: tuple[str, str]) -> Cure:
    """A dataset that keeps what it made: ``line`` returned ``value``."""
    kept = f"if i not in KEPT:\n            KEPT[i] = {value}\n        return KEPT[i]"
    return Cure(edits=((get, f"KEPT = {{}}\n\n\n{get}"), (line, kept), *more))


CURES: dict[str, Cure] = {
    "slow_loader": _settings("shuffle=True)", "shuffle=True, num_workers=4, persistent_workers=True)"),
    "input_respawned_short_epochs": _settings("num_workers=2", "num_workers=0"),
    "input_respawned_spawn": _settings('num_workers=2, multiprocessing_context="spawn"', "num_workers=0"),
    "input_cold_start_index": _settings("num_workers=2", "num_workers=0"),
    "input_cold_start_spawn_once": _settings(
        'num_workers=2, multiprocessing_context="spawn", persistent_workers=True', "num_workers=0"
    ),
    "input_many_workers_tiny_data": _settings("num_workers=8, persistent_workers=True", "num_workers=0"),
    "input_remote_sleep_one_worker": _settings("num_workers=1", "num_workers=12"),
    "input_accelerate_augment": _settings(
        "shuffle=True))", "shuffle=True, num_workers=2, persistent_workers=True))"
    ),
    "input_shallow_prefetch": _settings(
        "num_workers=1, prefetch_factor=1", "num_workers=2, prefetch_factor=16"
    ),
    "input_straggling_samples": _settings("num_workers=2", "num_workers=12, prefetch_factor=4"),
    "input_transport_huge_batches": _settings("num_workers=2", "num_workers=0"),
    "input_lru_cache_thrash": _settings("maxsize=80", "maxsize=None"),
    "host_thread_oversubscription": Cure(
        edits=(
            ('os.environ["OMP_NUM_THREADS"] = "24"', 'os.environ["OMP_NUM_THREADS"] = "2"'),
            ("torch.set_num_threads(24)", "torch.set_num_threads(2)"),
        )
    ),
    "host_gc_object_graph": _settings(
        "    model = torch.nn", "    import gc; gc.freeze()\n    model = torch.nn"
    ),
    "input_audio_python_features": _remembered(
        "class Clips(Dataset):",
        "return torch.tensor(self.features(self.clips[i])), self.labels[i]",
        "torch.tensor(self.features(self.clips[i])), self.labels[i]",
        ("num_workers=1, persistent_workers=True", "num_workers=0"),
    ),
    "input_repeated_spectrogram": _remembered(
        "class Spectrograms(Dataset):",
        "return torch.from_numpy(spectrogram(WAVES[i])), i % 4",
        "torch.from_numpy(spectrogram(WAVES[i])), i % 4",
        ("num_workers=1, persistent_workers=True", "num_workers=0"),
    ),
    "input_hooked_trainer_one_core": _remembered(
        "class Slices(Dataset):",
        "return torch.from_numpy(self.normalise(self.data[i])[None, ::4, ::4].copy())",
        "torch.from_numpy(self.normalise(self.data[i])[None, ::4, ::4].copy())",
    ),
    "config_workers_ignored": _remembered(
        "class Curves(Dataset):",
        "return torch.tensor(curve[::20]), torch.tensor([float(i % 7)])",
        "torch.tensor(curve[::20]), torch.tensor([float(i % 7)])",
        (
            "        curve = [math",
            "        if i in KEPT:\n            return KEPT[i]\n        curve = [math",
        ),
    ),
    "input_png_folder": Cure(
        edits=(
            ("class Folder(Dataset):", "KEPT = {}\n\n\nclass Folder(Dataset):"),
            (
                "        path = self.paths[i]\n",
                "        if i in KEPT:\n            return KEPT[i]\n        path = self.paths[i]\n",
            ),
            (
                "return torch.from_numpy(x).permute(2, 0, 1), int(os.path.basename(path)[0])",
                "KEPT[i] = torch.from_numpy(x).permute(2, 0, 1), int(os.path.basename(path)[0])\n"
                "        return KEPT[i]",
            ),
        )
    ),
    "input_h5_open_each": Cure(
        edits=(
            ("class Patches(Dataset):", "KEPT = {}\n\n\nclass Patches(Dataset):"),
            (
                "        with h5py.File(self.path",
                "        if i in KEPT:\n            return KEPT[i]\n        with h5py.File(self.path",
            ),
            (
                "return torch.from_numpy(img), torch.as_tensor(lab)",
                "KEPT[i] = torch.from_numpy(img), torch.as_tensor(lab)\n        return KEPT[i]",
            ),
        )
    ),
    "input_storage_uncached": Cure(
        edits=(
            ("class Volumes(Dataset):", "KEPT = {}\n\n\nclass Volumes(Dataset):"),
            (
                "        fd = os.open",
                "        if i in KEPT:\n            return KEPT[i]\n        fd = os.open",
            ),
            (
                "return torch.from_numpy(vol[::16, ::8, ::8].copy()), i % 2",
                "KEPT[i] = torch.from_numpy(vol[::16, ::8, ::8].copy()), i % 2\n        return KEPT[i]",
            ),
        )
    ),
    "input_tensor_from_lists": _code(
        ("for _ in range(1500)]\n", "for _ in range(1500)]\n        self.rows = torch.tensor(self.rows)\n"),
        ("x = torch.FloatTensor(row[:-1])", "x = row[:-1]"),
        ("return x, torch.FloatTensor([row[-1]])", "return x, row[-1:]"),
    ),
    "input_scaler_module_loop": _code(
        (
            "scaler = StandardScaler().fit(signals.reshape(-1, 9))",
            "scaler = StandardScaler().fit(signals.reshape(-1, 9))\n"
            "scaled = torch.tensor(scaler.transform(signals.reshape(-1, 9)).reshape(signals.shape), "
            "dtype=torch.float32)",
        ),
        ("        x = scaler.transform(signals[idx])\n", ""),
        ("torch.tensor(x, dtype=torch.float32)", "scaled[idx]"),
    ),
    "input_collate_in_workers": _code(
        (
            "        for a, b in edges.tolist():\n"
            "            adj[offset + a, offset + b] = 1.0\n"
            "            adj[offset + b, offset + a] = 1.0\n",
            "        at = torch.from_numpy(edges) + offset\n"
            "        adj[at[:, 0], at[:, 1]] = 1.0\n"
            "        adj[at[:, 1], at[:, 0]] = 1.0\n",
        ),
        (
            "num_workers=2, collate_fn=block_diagonal,\n                        persistent_workers=True",
            "collate_fn=block_diagonal",
        ),
    ),
    "input_collate_padding": _code(
        (
            "        for col, token in enumerate(tokens):\n"
            "            padded[row, col] = token\n"
            "            mask[row, col] = 1.0\n",
            "        padded[row, : len(tokens)] = torch.tensor(tokens)\n"
            "        mask[row, : len(tokens)] = 1.0\n",
        )
    ),
    "input_unused_fields": _code(
        ('            "raw": self.frames[k],\n', ""),
        ('            "flow": self.flow[k],\n', ""),
        ('            "mask": self.frames[k, 0] > 0.5,\n', ""),
        ("num_workers=2, persistent_workers=True", "num_workers=0"),
    ),
    "input_get_batch_slow": _code(
        ("def get_batch():", "ENCODED = torch.tensor(encode(text))\n\n\ndef get_batch():"),
        ("torch.tensor(encode(text[i:i + block_size]))", "ENCODED[i:i + block_size]"),
        ("torch.tensor(encode(text[i + 1:i + block_size + 1]))", "ENCODED[i + 1:i + block_size + 1]"),
    ),
    "input_generator_tokenize": _code(
        ("def batches(docs", "TOKENS = {d: torch.tensor(tokenize(d)) for d in DOCS}\n\n\ndef batches(docs"),
        ("torch.tensor([tokenize(d) for d in part])", "torch.stack([TOKENS[d] for d in part])"),
    ),
}


def cured(case: Path, folder: Path) -> Path:
    """The cured copy of a case, in ``folder``."""
    path = folder / case.name
    path.write_text(CURES[case.stem].applied(case.read_text()))
    return path
