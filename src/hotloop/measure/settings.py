"""Settings in effect beside what was configured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hotloop.measure.steps import LoaderUse, Setting
from hotloop.record.recording import Note, Process

LOADER_SETTINGS: Final = (
    "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size", "drop_last",
    "shuffle",
)  # fmt: skip

#: Name of a setting -> flag of the ``torch`` note.
TORCH_SETTINGS: Final = {
    "cudnn_benchmark": "cudnn_benchmark",
    "cudnn_deterministic": "cudnn_deterministic",
    "tf32": "matmul_allow_tf32",
    "float32_matmul_precision": "float32_matmul_precision",
    "threads": "threads",
}

#: Which source of a configured value speaks for the run: what was typed, then files, then defaults.
STRENGTH: Final = ("env", "yaml", "json", "toml", "python", "argparse")

#: A key of another loader than the training one.
OTHER_LOADER: Final = re.compile(r"(^|[._-])(val|valid|validation|eval|test)([._-]|$)", re.IGNORECASE)


def settings_of(
    process: Process, loader: LoaderUse | None, facts: Mapping[str, Any], accumulation: float
) -> tuple[Setting, ...]:
    """One entry per setting known to be in effect, or configured."""
    effect = _in_effect(loader, facts, accumulation)
    configured: dict[str, list[Note]] = {}
    for note in process.notes.get("config", ()):
        if not OTHER_LOADER.search(str(note.get("key", ""))):
            configured.setdefault(_meaning(note), []).append(note)
    result = []
    for name, value in effect.items():
        note = _strongest(configured.get(name, [])) or {}
        result.append(
            Setting(
                name=name,
                in_effect=value,
                configured=note.get("value"),
                where=_where(note) if note else None,
            )
        )
    return tuple(result)


def _in_effect(loader: LoaderUse | None, facts: Mapping[str, Any], accumulation: float) -> dict[str, Any]:
    effect: dict[str, Any] = {}
    if loader is not None:
        effect |= {name: loader.settings[name] for name in LOADER_SETTINGS if name in loader.settings}
    flags = facts.get("torch", {})
    effect |= {name: flags[flag] for name, flag in TORCH_SETTINGS.items() if flag in flags}
    if "deterministic_algorithms" in flags:
        effect["deterministic"] = bool(flags["deterministic_algorithms"] or flags.get("cudnn_deterministic"))
    autocast = facts.get("autocast", {})
    if "share" in autocast:
        effect["amp"] = bool(autocast["share"])
    modules = facts.get("modules", [])
    if modules:
        compiled = any(m.get("compiled") for m in modules) or bool(facts.get("compile", {}).get("graphs"))
        effect["compile"] = compiled
    if accumulation:
        effect["gradient_accumulation"] = round(accumulation)
    optimizers = facts.get("optimizers", [])
    if len(optimizers) == 1 and "lr" in optimizers[0]:
        effect["lr"] = optimizers[0]["lr"]
    return effect


def _meaning(note: Note) -> str:
    meaning = note.get("meaning")
    return (
        str(meaning) if meaning else re.split(r"\.", str(note.get("key", "")))[-1].lower().replace("-", "_")
    )


def _strongest(notes: Sequence[Note]) -> Note | None:
    """What was typed on the command line, else a file's value, else an argparse default."""

    def strength(note: Note) -> tuple[int, int]:
        source = str(note.get("source", ""))
        typed = source == "argparse" and bool(note.get("given"))
        return (0 if typed else 1, STRENGTH.index(source) if source in STRENGTH else len(STRENGTH))

    return min(notes, key=strength, default=None)


def _where(note: Note) -> str:
    if note.get("source") == "argparse":
        key = str(note.get("key", ""))
        return key if key.startswith("-") else "--" + key.replace("_", "-")
    file, line = note.get("file"), note.get("line")
    if file and line:
        return f"{file}:{line}"
    return str(file or note.get("key", ""))
