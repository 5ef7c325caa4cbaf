"""Settings, in source and in configuration files, that do not do what they say."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from hotloop import units
from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.loaders import EVALUATION, Loader
from hotloop.audit.module import Module
from hotloop.audit.patterns import Hit, Rule, anywhere, at, at_entry, flag_settings, unconditional
from hotloop.audit.program import Program
from hotloop.source.nodes import argument, text_of
from hotloop.source.values import UNKNOWN, constant
from hotloop.source.written import never_equal
from hotloop.torch_facts import INTERVAL, LENGTHS, LOADER_DEFAULTS, meaning_of

#: Words of code and configuration that scale the learning rate themselves.
_SCALES: Final = re.compile(
    r"scale_?lr|lr_?scal|auto_scale|base_batch|linear_?scal|lr\s*\*=?[^\n]*batch|lr\s*=[^\n#]*batch", re.I
)
#: A batch of one GPU: the other configuration may be for another number of them.
_OF_ONE_GPU: Final = re.compile(r"per_?(gpu|device|rank|card|worker|replica)", re.I)
#: Numbers of GPUs in file names: ``4x4``, ``8xb32``, ``16gpus``.
_NUM_GPUS: Final = re.compile(r"\d+xb?\d+|\d+_?gpus?", re.I)
#: The batch has to grow or shrink by this much to matter.
_RATIO: Final = 2.0
_SWITCHES: Final = ("amp", "compile", "deterministic", "tf32", "cudnn_benchmark")


def _deprecated_amp(program: Program) -> Iterator[Hit]:
    """torch.cuda.amp.autocast or GradScaler, once per file, where no condition chooses it."""
    for module in program.modules:
        named = module.calls_to("torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler")
        calls = sorted((one for one in named if unconditional(module, one)), key=lambda call: call.lineno)
        if calls:
            name = module.dotted(calls[0].func)
            yield at(
                module,
                calls[0],
                "info",
                f"{name} is deprecated since PyTorch 2.4 and warns at every start.",
                f"Write torch.amp.{name.rpartition('.')[2]}('cuda', …).",
                also=calls[1:],
            )


def _overridden_flag(program: Program) -> Iterator[Hit]:
    """One function sets the same flag twice, to another value the second time, both for sure."""
    for module in program.modules:
        first: dict[tuple[str, object], tuple[int, object]] = {}
        for name, node, value in flag_settings(module):
            if not isinstance(value, bool) or not unconditional(module, node):
                continue
            key = (name, module.function_of(node))
            if key in first and value != first[key][1]:
                yield at(
                    module,
                    node,
                    "medium",
                    f"{name} becomes {value} here, after line {first[key][0]} set it to {first[key][1]}: the "
                    "earlier line has no effect.",
                )
            first[key] = (node.lineno, value)


# Values that do not arrive


def _ignored_value(program: Program) -> Iterator[Hit]:
    """A training loader's literal (or missing) argument beside an option that nothing reads.

    With ``--config``, a configured value that the loader's literal contradicts counts too.
    """
    for loader in program.loaders:
        for meaning in LOADER_SETTINGS if loader.role == "train" else ():
            yield from _ignored_option(program, loader, meaning)
            yield from _ignored_entry(program, loader, meaning)


def _ignored_option(program: Program, loader: Loader, meaning: str) -> Iterator[Hit]:
    value = loader.constant(meaning, None)
    has = f"{meaning}={value!r}" if meaning in loader.given else f"no {meaning}"
    for call, name, flag in options(loader.module) if value is not UNKNOWN else ():
        if meaning_of(name) == meaning and not is_read(program, name):
            yield at(
                loader.module,
                loader.call,
                "medium",
                f"The option {flag} (line {call.lineno}) is read nowhere; the training loader has {has}.",
                f"Pass {meaning}=args.{name}.",
            )


def _ignored_entry(program: Program, loader: Loader, meaning: str) -> Iterator[Hit]:
    value = loader.constant(meaning, LOADER_DEFAULTS[meaning])
    if value is UNKNOWN or (meaning == "batch_size" and not loader.has(meaning)):
        return
    entries = [
        (config, entry)
        for config in program.configs
        for entry in config.entries
        if meaning_of(entry.key) == meaning and not EVALUATION.search(entry.key)
    ]
    for config, entry in entries if len(entries) == 1 else ():
        if entry.value == value or isinstance(entry.value, str):
            continue
        if not _is_meant(program, loader, meaning, entry.name):
            continue
        has = (
            f"has {meaning}={value!r} as a literal" if meaning in loader.given else f"is not given {meaning}"
        )
        yield at(
            loader.module,
            loader.call,
            "high",
            f"{config.name}:{entry.line} says {entry.key} = {entry.value!r}; the training loader {has}.",
            f"Pass the configured value: {meaning}=cfg…{entry.name}.",
        )


def _is_meant(program: Program, loader: Loader, meaning: str, name: str) -> bool:
    """Whether a key can only be meant for this loader: no other file trains, no loader is given the key."""
    others = [one for one in program.loaders if one.role == "train" and one.module is not loader.module]
    given = [one.given[meaning] for one in program.loaders if meaning in one.given]
    complete = all(one.complete for one in program.loaders)
    return complete and not others and not any(name in ast.unparse(node) for node in given)


def _unmatched_value(program: Program) -> Iterator[Hit]:
    """``amp: true`` where every use of the key in the tree is ``== "bf16"`` and the like.

    Only switches with a known meaning that are configured as on; a key that stands twice is not looked at.
    """
    entries = [
        (config, entry)
        for config in program.configs
        for entry in config.entries
        if meaning_of(entry.key) in _SWITCHES and entry.value not in (False, None, 0, "")
    ]
    names = Counter(entry.name for _, entry in entries)
    for config, entry in entries:
        if names[entry.name] > 1 or not program.mentions(entry.name):
            continue
        modules = {m.name: m for m in program.modules if entry.name in m.text.text}
        written = never_equal(modules, entry.name, entry.value)
        if written is not None:
            yield at_entry(
                config,
                entry,
                "high",
                f"{entry.key} = {entry.value!r} turns nothing on: {written.file}:{written.line} "
                f"{written.text}, which {entry.value!r} never equals.",
                f"Write what the code compares with, or compare with {entry.value!r} there.",
            )


# Learning rate and workers


def _learning_rate_not_scaled(program: Program) -> Iterator[Hit]:
    """A configuration that names its base, batch size and all, and changes only the batch size."""
    if any(_SCALES.search(text) for text in program.code):
        return
    for config in program.configs:
        base = config.base
        if base is None or any(_SCALES.search(line) for c in (config, base) for line in c.lines):
            continue
        own, before = _only(config, "batch_size"), _only(base, "batch_size")
        rate, other = _only(base, "lr"), _only(config, "lr")
        if own is None or before is None or rate is None or (other is not None and other.value != rate.value):
            continue
        if _only(config, "gradient_accumulation") is not None or own.name != before.name:
            continue
        if _OF_ONE_GPU.search(own.key) or _num_gpus(config) != _num_gpus(base):
            continue
        ratio = own.value / before.value
        if ratio >= _RATIO or ratio <= 1 / _RATIO:
            yield at_entry(
                config,
                own,
                "low",
                f"{own.key} becomes {own.value} here, {before.value} in {base.name}:{before.line}, and the "
                f"learning rate stays {rate.value:g} ({base.name}:{rate.line}): no code scales it.",
                f"For SGD scale it with the batch, to {rate.value * ratio:g}, with warm-up; for Adam by the "
                f"square root, to {rate.value * ratio**0.5:.3g}. Compare the loss by samples seen.",
            )


def _only(config: ConfigFile, meaning: str) -> Entry | None:
    """The one entry of a meaning, a number above 0; None where there are several or none."""
    found = [e for e in config.entries if meaning_of(e.key) == meaning and not EVALUATION.search(e.key)]
    value = found[0].value if len(found) == 1 else None
    return found[0] if isinstance(value, int | float) and value is not True and value > 0 else None


def _num_gpus(config: ConfigFile) -> list[str]:
    return _NUM_GPUS.findall(PurePath(config.name).name)


def _too_many_workers(program: Program) -> Iterator[Hit]:
    """A literal or configured num_workers above the usable cores of the machine."""
    machine = program.machine
    if machine is None:
        return
    words = (
        f"on {units.rate(machine.cores)} usable cores: workers that compute and the training process take "
        "the cores from each other. More than cores pay only where samples wait for storage or a network."
    )
    cores, gpus = int(machine.cores), max(1, machine.gpus)
    first = max(1, min(cores - 1, 24) // gpus)  # of each GPU
    advice = f"Start with {first} (--cores N audits for another machine)."
    for loader in program.loaders:
        workers = loader.count("num_workers", 0)
        if workers > machine.cores:
            yield at(loader.module, loader.call, "low", f"num_workers={workers} {words}", advice)
    for config in program.configs:
        for entry in config.entries:
            if meaning_of(entry.key) != "num_workers" or not isinstance(entry.value, int):
                continue
            if entry.value > machine.cores and is_read(program, entry.name):
                message = f"{entry.key} = {entry.value} {words}"
                yield at_entry(config, entry, "low", message, advice)


# Options and keys that no code reads


#: The arguments of a loader that are looked at.
LOADER_SETTINGS: Final = (
    "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size"
)  # fmt: skip
#: What takes a mapping as a whole.
_WHOLE: Final = "items|keys|values|get|pop|copy|update|dict|to_dict|as_dict|_asdict|model_dump"
#: ``**config``, but not ``**config["model"]`` or ``**config.model``: those are sections.
_SPREAD: Final = (
    r"\*\*\s*(cfg|config|conf|opt|opts|args|hparams|params|settings)\b"
    rf"(?!\[|\.(?!(?:{_WHOLE})\b)\w)"
)
#: What a setting is for -> the calls that show that this tree does that itself, no framework around it.
_CONSUMERS: Final = {"lr": ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"), "amp": ("autocast",)}


def options(module: Module) -> Iterator[tuple[ast.Call, str, str]]:
    """The argparse options that a file declares with literal names: the call, the attribute that it becomes,
    and the flag as typed.
    """
    for call in module.calls("add_argument"):
        flags = [text_of(given) or "" for given in call.args]
        if flags and all(flags):
            destination = constant(module, argument(call, "dest"))
            long = next((flag for flag in flags if flag.startswith("--")), flags[0])
            name = destination if isinstance(destination, str) else long.lstrip("-").replace("-", "_")
            yield call, name, long


def is_read(program: Program, name: str) -> bool:
    """Whether any source may read an attribute or key of that name, or hands all options on."""
    reads = (
        f".{name}", f'"{name}"', f"'{name}'", "vars(", "__dict__", "_get_kwargs", "asdict("
    )  # fmt: skip
    return any(read in text for text in program.code for read in reads)


def _dead_key(program: Program) -> Iterator[Hit]:
    """Settings whose name no source of the tree mentions again.

    What their names mean must be known, or the section they stand in be read key by key.
    """
    for module in program.modules:
        for call, name, flag in options(module):
            if _meaning(name) and not is_read(program, name):
                words = f"The option {flag} is declared and read nowhere: giving it changes nothing."
                yield at(module, call, "medium", words, "Use it, or remove it.")
    for config in program.configs:
        for entry in config.entries:
            meaning = _meaning(entry.name)
            ours = _consumer_is_here(program, meaning) if meaning else _read_by_key(program, config, entry)
            if ours and _is_dead(program, config, entry):
                words = f"{entry.key} = {entry.value!r} is read by no code: no audited file asks for it."
                yield at_entry(config, entry, "medium" if meaning else "low", words)


def _meaning(name: str) -> str | None:
    """What a name means; nothing for how often something is due: libraries read that by themselves."""
    meaning = meaning_of(name)
    return None if meaning in (INTERVAL, *LENGTHS) else meaning


def _read_by_key(program: Program, config: ConfigFile, entry: Entry) -> bool:
    """Whether the audited files ask for single keys of the entry's section, and never for the whole of it."""
    section = entry.key.rpartition(".")[0]
    last = re.escape(section.rpartition(".")[2])
    if not section:
        return False
    whole = rf"""["']{last}["'](?!\]\[)|\.{last}\b(?!\.(?!{_WHOLE})\w|\[)|["'.]{last}\.(?:{_WHOLE})\b"""
    if any(re.search(whole, text) for text in program.code):
        return False
    others = [one.name for one in config.entries if one.key == f"{section}.{one.name}" and one is not entry]
    single = rf"""\b{last}(?:\.|["']\]\[["'])(?:{"|".join(map(re.escape, others))})\b"""
    return bool(others) and any(re.search(single, text) for text in program.code)


def _consumer_is_here(program: Program, meaning: str) -> bool:
    """Whether what a setting is for stands in the audited files; else code outside may read it."""
    if meaning in LOADER_SETTINGS:
        return bool(program.loaders)
    calls = _CONSUMERS.get(meaning)
    return any(m.calls(c) for m in program.modules for c in calls) if calls else bool(program.regions)


def _is_dead(program: Program, config: ConfigFile, entry: Entry) -> bool:
    """Whether no source reads the key, and none of the mappings it stands in is handed on whole."""
    if config.name.endswith(".py") and "." not in entry.key and program.mentions(entry.name):
        return False  # executed into the globals of a script, which reads plain names
    interpolated = any(f"{entry.name}}}" in line for one in program.configs for line in one.lines)
    if interpolated or is_read(program, entry.name):
        return False
    above = [re.escape(part) for part in entry.key.split(".")[:-1]]
    spread = [rf"\*\*[\w.]*\b{part}\b|\*\*[\w.]+\[.{part}.\]|\(\s*[\w.]*(\.|\[.){part}\b" for part in above]
    return not any(re.search(pattern, text) for pattern in [*spread, _SPREAD] for text in program.texts)


RULES: Final[dict[str, Rule]] = {
    "config/deprecated-amp": _deprecated_amp,
    "config/ignored-value": _ignored_value,
    "config/learning-rate-not-scaled": _learning_rate_not_scaled,
    "config/overridden-flag": _overridden_flag,
    "config/too-many-workers-for-cores": _too_many_workers,
    "config/unmatched-value": _unmatched_value,
    "config/unsafe-load": anywhere("low", "torch.load", given=("weights_only", False)),
    "config/dead-key": _dead_key,
}
