"""Settings in effect beside every value that was configured, and what decided where the two differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hotloop.measure.places import places_of
from hotloop.measure.steps import Configured, LoaderUse, Setting
from hotloop.record.recording import Note, Process
from hotloop.source.written import Written, loader_argument, never_equal
from hotloop.torch_facts import INTERVAL, LENGTHS

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
#: Flags that can have decided a setting, the most telling first.
_DECIDES: Final = {
    "deterministic": ("deterministic_algorithms", "cudnn_deterministic"),
    "tf32": ("matmul_allow_tf32", "float32_matmul_precision"),
}

#: Sources of values that are files of configuration.
_FILES: Final = frozenset(["yaml", "json", "toml"])
#: What no run says by itself.
_NOT_MEASURED: Final = (INTERVAL, *LENGTHS)
#: Keys that configure something else than the training loader and step.
_OTHER: Final = re.compile(
    r"(^|[._-])(val|valid|validation|eval|evaluation|test|dev|infer|inference|predict|download|downloader|"
    r"preprocess|preprocessing|prepare|preparation|tokeniz\w*|export|extract\w*|rollout|actor|ray|dask|"
    r"pretrain\w*|teacher|server|upload\w*|convert\w*)([._-]|$)",
    re.IGNORECASE,
)


def settings_of(
    process: Process, loader: LoaderUse | None, facts: Mapping[str, Any], accumulation: float
) -> tuple[Setting, ...]:
    """One entry per setting known to be in effect, with the configured value that counts, and all of them."""
    effect = _in_effect(process, loader, facts, accumulation)
    configured: dict[str, list[Note]] = {}
    for note in _configured(process):
        if note.get("meaning") not in _NOT_MEASURED and not _OTHER.search(str(note.get("key", ""))):
            configured.setdefault(_meaning(note), []).append(note)
    first = [shape[0] for one in (loader.batch_fields if loader else ()) if (shape := one.get("shape"))]
    for note in configured.get("batch_size", ()):
        if effect.get("batch_size") == 1 and note.get("value") in first:
            effect["batch_size"] = note["value"]  # the dataset makes whole batches
    result = []
    for name in dict.fromkeys([*effect, *configured]):
        notes, composed = _told_apart(configured.get(name, []))
        counts = composed or _counting(notes, effect.get(name))
        if counts is None:
            result += [Setting(name=name, in_effect=effect[name])] if name in effect else []
            continue
        said, value = counts.get("value"), effect.get(name)
        differs = value is not None and not _honoured(name, said, effect, facts, accumulation)
        result.append(
            Setting(
                name=name,
                in_effect=value,
                configured=said,
                where=_where(counts),
                differs=differs,
                by=_decided_by(process, loader, name, counts, value, notes) if differs else None,
                sources=tuple(_source(note, said, value, differs=differs) for note in notes),
            )
        )
    return tuple(result)


def planned(process: Process) -> tuple[str, str, int] | None:
    """How long the training is configured to be: the key, ``epochs`` or ``max_steps``, and how many.

    What trains knows best. None where nothing says so, or where it is said in two ways.
    """
    found: dict[str, list[Note]] = {}
    notes = _configured(process)
    for one in [one for one in notes if one.get("source") == "trainer"] or notes:
        if one.get("meaning") in LENGTHS and not _OTHER.search(str(one.get("key", ""))):
            found.setdefault(str(one["meaning"]), []).append(one)
    said = [
        (str(note["key"]).rpartition(".")[2], name, note["value"])
        for name, those in found.items()
        if (note := _counting(those, None)) and isinstance(note.get("value"), int) and note["value"] > 0
    ]
    return said[0] if len(said) == 1 else None


def _configured(process: Process) -> list[Note]:
    """The configured values. Where the command names a file of them, files that other code reads configure
    something else: a part that was trained before.
    """
    notes = process.notes.get("config", ())
    words = process.first("process").get("argv") or ()
    names = {Path(part).name for word in words for part in str(word).split("=")}
    files = [note for note in notes if note.get("source") in _FILES and note.get("file")]
    readers = {_reader(note) for note in files if Path(str(note["file"])).name in names}
    return [note for note in notes if not (readers and note in files and _reader(note) not in readers)]


def _reader(note: Note) -> str:
    return str(note.get("reader")).rpartition(":")[0]


def _in_effect(
    process: Process, loader: LoaderUse | None, facts: Mapping[str, Any], accumulation: float
) -> dict[str, Any]:
    effect: dict[str, Any] = {}
    if loader is not None:
        effect |= {name: loader.settings[name] for name in LOADER_SETTINGS if name in loader.settings}
    flags = process.first("torch")  # at the first step: what training ran with
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
    last = str(note.get("key", "")).rpartition(".")[2]
    return str(note.get("meaning") or last.lower().replace("-", "_"))


def _told_apart(notes: list[Note]) -> tuple[list[Note], Note | None]:
    """The values as written, and the one of them that Hydra composed the configuration with, if it did."""
    written = [note for note in notes if note.get("source") != "hydra"]
    composed = [note for note in notes if note.get("source") == "hydra"]
    if not composed:
        return written, None
    value = composed[-1].get("value")
    origin = sorted((note for note in written if same(note.get("value"), value)), key=_typed)
    return (written, origin[-1]) if origin else ([*written, composed[-1]], composed[-1])


def _counting(notes: Sequence[Note], in_effect: Any) -> Note | None:
    """The configured value that counts: what was typed, else the one in effect, else the last one read.

    None where two keys of one file disagree, for one of them means something else.
    """
    typed = [note for note in notes if _typed(note)]
    if typed:
        return typed[-1]
    written = [note for note in notes if note.get("source") != "argparse"]
    honoured = [note for note in written if same(note.get("value"), in_effect)]
    if honoured:
        return honoured[-1]
    for file in {note.get("file") for note in written}:
        keys = {str(n.get("key")): n.get("value") for n in written if n.get("file") == file and file}
        if len(set(map(str, keys.values()))) > 1:
            return None
    said = written or notes  # the file read last usually overrides the one before
    return said[-1] if said else None


def _typed(note: Note) -> bool:
    return note.get("source") == "argparse" and bool(note.get("given"))


def same(a: Any, b: Any) -> bool:
    """Whether two values mean the same setting, whatever their spelling; ``"4"`` is 4, ``"true"`` is True."""
    left, right = plain_number(a), plain_number(b)
    return a == b or (left is not None and left == right) or str(a).strip().lower() == str(b).strip().lower()


def plain_number(value: Any) -> float | None:
    """A configured value as a number (True is 1), None where it is none."""
    if isinstance(value, bool | int | float):
        return float(value)
    text = str(value).strip().lower()
    words = {"true": 1.0, "yes": 1.0, "on": 1.0, "false": 0.0, "no": 0.0, "off": 0.0}
    try:
        return words[text] if text in words else float(text)
    except ValueError:
        return None


def _honoured(
    name: str, configured: Any, effect: Mapping[str, Any], facts: Mapping[str, Any], accumulation: float
) -> bool:
    """Whether the value in effect is what was meant: the same one, or its share of a divided batch."""
    in_effect = effect[name]
    if same(configured, in_effect) or name == "lr":
        return True  # warm-up and scaling change the learning rate on purpose, from the first step on
    if name in ("prefetch_factor", "persistent_workers") and not effect.get("num_workers"):
        return True  # without workers they mean nothing
    if name == "pin_memory" and not facts.get("accelerator"):
        return True  # without a device there is nothing to pin it for
    if name == "deterministic" and configured:
        return bool(effect.get("cudnn_deterministic"))
    if name == "tf32" and configured:
        return bool(facts.get("torch", {}).get("cudnn_allow_tf32"))
    wanted, have = plain_number(configured), plain_number(in_effect)
    if wanted is None and name in LOADER_SETTINGS and not isinstance(configured, bool):
        return True  # "auto"
    if not wanted or not have or name not in ("batch_size", "num_workers"):
        return False
    ranks, updates = int(facts.get("world_size") or 1), max(1, round(accumulation or 1))
    parts = {ranks, updates, ranks * updates} if name == "batch_size" else {ranks}
    return wanted / have in parts


def _source(note: Note, counts: Any, in_effect: Any, *, differs: bool) -> Configured:
    """One configured value; it is not in effect where another one is, or another one counts."""
    value = note.get("value")
    replaced = in_effect is not None and not same(value, in_effect)
    return Configured(
        source=str(note.get("source", "")),
        key=str(note.get("key", "")),
        value=value,
        where=_where(note),
        default=note.get("source") == "argparse" and not note.get("given"),
        differs=replaced and (differs or not same(value, counts)),
    )


def _where(note: Note) -> str:
    if note.get("source") == "argparse":
        key = str(note.get("option") or "--" + str(note.get("key", "")).replace("_", "-"))
        return key if key.startswith("-") else f"{key} (command line)"
    file, line = note.get("file") or note.get("reader"), note.get("line")
    if file and line:
        return f"{file}:{line}"
    return str(file or note.get("key", ""))


# Who decided


def _decided_by(
    process: Process, loader: LoaderUse | None, name: str, note: Note, in_effect: Any, notes: Sequence[Note]
) -> Written | None:
    """What put the other value in effect, where the recording tells it for sure."""
    if name in LOADER_SETTINGS:
        return _loader_argument(process, loader, name, in_effect, notes)
    if name == "amp" and in_effect is False:
        raw = note.get("raw", note.get("value"))
        key = str(note.get("key", "")).rpartition(".")[2]
        places = places_of(process)
        codes = {file: code for file in places.sources if (code := places.code(file)) is not None}
        return never_equal(codes, key, raw)
    return _flag_setter(process, name)


def _loader_argument(
    process: Process, loader: LoaderUse | None, name: str, in_effect: Any, notes: Sequence[Note]
) -> Written | None:
    if loader is None:
        return None
    found = next(_written(process, loader, name, in_effect), None)
    if found is None:
        return None
    default = next(
        (n for n in notes if n.get("option") and not n.get("given") and same(n.get("value"), in_effect)), None
    )
    if default is not None and found.value is None and re.search(rf"\b{default['key']}\b", found.text):
        return Written(
            file=str(default.get("file") or found.file),
            line=int(default.get("line") or found.line),
            text=f"{default['option']} was not given, its default is {default.get('value')}",
        )
    return found


def _written(process: Process, loader: LoaderUse, name: str, in_effect: Any) -> Iterator[Written]:
    """Where the argument was written for the loader; or for the one that a library made it from."""
    notes = process.notes.get("loader", ())
    own = [note for note in notes if note.get("id") == loader.id]
    alike = [n for n in notes if n.get("dataset") == loader.dataset and same(n.get(name), in_effect)]
    places = places_of(process)
    texts = {file: "\n".join(lines) for file, lines in places.sources.items()}
    for note in [*own, *alike]:
        stack = places.sites.get(note.get("via") or note.get("where", 0))
        found = loader_argument(texts, stack.frames if stack else (), name)
        if found is not None and (found.value is None or same(found.value, in_effect)):
            yield found


def _flag_setter(process: Process, name: str) -> Written | None:
    """The line that set torch's flag last, before the first step."""
    flags = process.first("torch")
    setters = flags.get("set_by")
    for flag in _DECIDES.get(name, (TORCH_SETTINGS.get(name, name),)):
        entry = setters.get(flag) if isinstance(setters, Mapping) else None
        if isinstance(entry, list | tuple) and len(entry) == 3 and same(entry[0], flags.get(flag)):
            return Written(
                file=str(entry[1]), line=int(entry[2]), text=f"sets {flag} to {entry[0]}", value=entry[0]
            )
    return None
