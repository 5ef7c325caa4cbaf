"""What an expert with an afternoon would change in each planted case: pieces of text, and what replaces them.

Expert cures are not limited to what ``tune`` can do: where the right thing is an edit of the user's code they
make it, and the row shows what is left on the table.
"""

from __future__ import annotations

from pathlib import Path

from cure import Cure, code, settings
from cures_of_steps import STEPS


def _remembered(get: str, line: str, value: str, *more: tuple[str, str]) -> Cure:
    """A dataset that keeps what it made: ``line`` returned ``value``."""
    kept = f"if i not in KEPT:\n            KEPT[i] = {value}\n        return KEPT[i]"
    return Cure(edits=((get, f"KEPT = {{}}\n\n\n{get}"), (line, kept), *more))


CURES: dict[str, Cure] = {
    "slow_loader": settings("shuffle=True)", "shuffle=True, num_workers=4, persistent_workers=True)"),
    "input_respawned_short_epochs": settings("num_workers=2", "num_workers=0"),
    "input_respawned_spawn": settings('num_workers=2, multiprocessing_context="spawn"', "num_workers=0"),
    "input_cold_start_index": settings("num_workers=2", "num_workers=0"),
    "input_cold_start_spawn_once": settings(
        'num_workers=2, multiprocessing_context="spawn", persistent_workers=True', "num_workers=0"
    ),
    "input_many_workers_tiny_data": settings("num_workers=8, persistent_workers=True", "num_workers=0"),
    "input_remote_sleep_one_worker": settings("num_workers=1", "num_workers=12"),
    "input_accelerate_augment": settings(
        "shuffle=True))", "shuffle=True, num_workers=2, persistent_workers=True))"
    ),
    "input_shallow_prefetch": settings(
        "num_workers=1, prefetch_factor=1", "num_workers=2, prefetch_factor=16"
    ),
    "input_straggling_samples": settings("num_workers=2", "num_workers=12, prefetch_factor=4"),
    "input_transport_huge_batches": code(
        ("return self.vol[i % 32], i % 5", "return self.vol[i % 32][:, 480:544, 224:288], i % 5"),
        ("pooled = x[:, :, 480:544, 224:288].mean((2, 3))", "pooled = x.mean((2, 3))"),
        ("num_workers=2", "num_workers=0"),
    ),
    "input_lru_cache_thrash": settings("maxsize=80", "maxsize=None"),
    "host_thread_oversubscription": Cure(
        edits=(
            ('os.environ["OMP_NUM_THREADS"] = "24"', 'os.environ["OMP_NUM_THREADS"] = "2"'),
            ("torch.set_num_threads(24)", "torch.set_num_threads(2)"),
        )
    ),
    "host_gc_object_graph": settings(
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
    "input_tensor_from_lists": code(
        ("for _ in range(1500)]\n", "for _ in range(1500)]\n        self.rows = torch.tensor(self.rows)\n"),
        ("x = torch.FloatTensor(row[:-1])", "x = row[:-1]"),
        ("return x, torch.FloatTensor([row[-1]])", "return x, row[-1:]"),
    ),
    "input_scaler_module_loop": code(
        (
            "scaler = StandardScaler().fit(signals.reshape(-1, 9))",
            "scaler = StandardScaler().fit(signals.reshape(-1, 9))\n"
            "scaled = torch.tensor(scaler.transform(signals.reshape(-1, 9)).reshape(signals.shape), "
            "dtype=torch.float32)",
        ),
        ("        x = scaler.transform(signals[idx])\n", ""),
        ("torch.tensor(x, dtype=torch.float32)", "scaled[idx]"),
    ),
    "input_collate_in_workers": code(
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
    "input_collate_padding": code(
        (
            "        for col, token in enumerate(tokens):\n"
            "            padded[row, col] = token\n"
            "            mask[row, col] = 1.0\n",
            "        padded[row, : len(tokens)] = torch.tensor(tokens)\n"
            "        mask[row, : len(tokens)] = 1.0\n",
        )
    ),
    "input_unused_fields": code(
        ('            "raw": self.frames[k],\n', ""),
        ('            "flow": self.flow[k],\n', ""),
        ('            "mask": self.frames[k, 0] > 0.5,\n', ""),
        ("num_workers=2, persistent_workers=True", "num_workers=0"),
    ),
    "input_get_batch_slow": code(
        ("def get_batch():", "ENCODED = torch.tensor(encode(text))\n\n\ndef get_batch():"),
        ("torch.tensor(encode(text[i:i + block_size]))", "ENCODED[i:i + block_size]"),
        ("torch.tensor(encode(text[i + 1:i + block_size + 1]))", "ENCODED[i + 1:i + block_size + 1]"),
    ),
    "input_generator_tokenize": code(
        ("def batches(docs", "TOKENS = {d: torch.tensor(tokenize(d)) for d in DOCS}\n\n\ndef batches(docs"),
        ("torch.tensor([tokenize(d) for d in part])", "torch.stack([TOKENS[d] for d in part])"),
    ),
    "config_flag_overridden": settings(
        "num_workers = 0  # args.num_workers crashed on the laptop", "num_workers = args.num_workers"
    ),
    "trend_data_time_too_late": _remembered(
        "class Spectra(Dataset):",
        "return torch.from_numpy(np.abs(np.fft.rfft(wave))[:512].astype(np.float32)), i % 3",
        "torch.from_numpy(np.abs(np.fft.rfft(wave))[:512].astype(np.float32)), i % 3",
        (
            "        rng = np.random.default_rng(i)",
            "        if i in KEPT:\n            return KEPT[i]\n        rng = np.random.default_rng(i)",
        ),
    ),
    "input_iterable_jsonl": code(
        (
            "        self.path, self.repeats = path, repeats",
            "        self.path, self.repeats, self.made = path, repeats, []",
        ),
        (
            "        for _ in range(self.repeats):\n",
            "        for number in range(self.repeats):\n"
            "            if number:\n                yield from self.made\n                continue\n",
        ),
        (
            'yield x, float(record["clicked"])',
            'self.made.append((x, float(record["clicked"])))\n                    yield self.made[-1]',
        ),
    ),
    "input_replay_buffer": code(
        (
            "        self.memory = collections.deque([], maxlen=capacity)",
            "        self.memory = [torch.zeros(capacity, *shape, dtype=dtype) for shape, dtype in KINDS]\n"
            "        self.num = 0",
        ),
        (
            "class ReplayMemory:",
            "KINDS = [((24,), torch.float32), ((), torch.int64), ((), torch.float32), "
            "((24,), torch.float32), ((), torch.float32)]\n\n\nclass ReplayMemory:",
        ),
        (
            "        self.memory.append(Transition(*args))",
            "        for kept, value in zip(self.memory, args):\n"
            "            kept[self.num % len(kept)] = torch.as_tensor(value)\n        self.num += 1",
        ),
        (
            "        picked = random.sample(self.memory, batch_size)\n"
            "        batch = Transition(*zip(*picked))\n"
            "        return (\n"
            "            torch.stack([torch.tensor(s, dtype=torch.float32) for s in batch.state]),\n"
            "            torch.tensor(batch.action),\n"
            "            torch.tensor(batch.reward, dtype=torch.float32),\n"
            "            torch.stack([torch.tensor(s, dtype=torch.float32) for s in batch.next_state]),\n"
            "            torch.tensor(batch.done, dtype=torch.float32),\n"
            "        )",
            "        at = torch.randint(min(self.num, len(self.memory[0])), (batch_size,))\n"
            "        return tuple(kept[at] for kept in self.memory)",
        ),
    ),
}

CURES |= STEPS


def cured(case: Path, folder: Path) -> Path:
    """The cured copy of a case, in ``folder``."""
    path = folder / case.name
    path.write_text(CURES[case.stem].applied(case.read_text()))
    return path
