"""Golden cases, one file each: what a run would have said (JSON), the sources before, and what they become.

Sections begin with ``=== before/train.py``, ``=== after/train.py`` (of files that change) and ``=== words``.

A call, or a loop, is named by the file and the beginning of its text, ``train.py: DataLoader(train``; ``#2``
behind it means the second one. Frames are listed outermost first.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.findings import Place
from hotloop.fix.patch import Patch, make, with_values
from hotloop.fix.scene import Scene
from hotloop.measure.steps import Setting
from hotloop.record import rows as row
from hotloop.record.recording import ROW_DTYPE, Process
from hotloop.remedy import catalogue

KINDS = {"forward": row.FORWARD, "backward": row.BACKWARD, "optimizer": row.OPTIMIZER}
KINDS |= {"clip": row.CLIP, "transfer": row.TRANSFER, "save": row.SAVE, "fetch": row.FETCH}
KINDS |= {"log": row.LOG, "scored": row.FORWARD}
KINDS |= {"read": row.SYNC, "read_whole": row.SYNC, "waited": row.SYNC, "fetched_late": row.TRANSFER}

GOLDEN = Path(__file__).parent / "golden"
_SECTION = re.compile(rb"^=== (\S+)( without a last line end)?\n", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One golden case."""

    name: str
    facts: dict[str, Any]
    before: dict[str, bytes]
    after: dict[str, bytes]  # every file, changed or not
    words: str

    def write(self, folder: Path, *, after: bool = False) -> Path:
        """Write the sources of the case, as they are or as they become."""
        for name, data in (self.after if after else self.before).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder

    def text(self, name: str = "train.py") -> str:
        """A source as it is."""
        return self.before[name].decode()

    def rewritten(self, after: dict[str, bytes], words: str) -> None:
        """Write the case's file again, with what a patch makes of it now."""
        changed = {f"after/{name}": data for name, data in after.items() if data != self.before[name]}
        sections = {f"before/{name}": data for name, data in self.before.items()} | changed
        sections |= {"words": words.encode()} if words else {}
        out = json.dumps(self.facts, indent=1, ensure_ascii=False).encode() + b"\n"
        for name, data in sections.items():
            ends = data.endswith(b"\n")
            out += f"=== {name}{'' if ends else ' without a last line end'}\n".encode() + data
            out += b"" if ends else b"\n"
        (GOLDEN / f"{self.name}.case").write_bytes(out)


def case_of(name: str) -> Case:
    """The golden case of this name."""
    facts, *parts = _SECTION.split((GOLDEN / f"{name}.case").read_bytes())
    found = {
        section.decode(): data[:-1] if unended else data
        for section, unended, data in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }
    before = {key.removeprefix("before/"): data for key, data in found.items() if key.startswith("before/")}
    after = {key.removeprefix("after/"): data for key, data in found.items() if key.startswith("after/")}
    words = found.get("words", b"").decode()
    return Case(name=name, facts=json.loads(facts), before=before, after=before | after, words=words)


def names(pattern: str = "*") -> list[str]:
    """The golden cases, by name."""
    return sorted(path.stem for path in GOLDEN.glob(f"{pattern}.case"))


def patch_of(folder: Path, facts: dict[str, Any]) -> Patch:
    """The patch for the sources in ``folder``."""
    scene = scene_of(folder, facts)
    return make(scene, with_values(map(catalogue.parse, facts["apply"]), ()))


def scene_of(folder: Path, facts: dict[str, Any]) -> Scene:
    notes = _Notes(folder)
    single = [facts["loader"]] if "loader" in facts else []
    for number, loader in enumerate(facts.get("loaders") or single, 1):
        settings = {"class": "torch.utils.data.dataloader.DataLoader", "num_workers": 0, **loader["settings"]}
        if "at" in settings.get("dataset", {}):
            at = settings["dataset"]["at"]
            place = {"file": str(folder / at.partition(": ")[0]), "line": notes.line(at)}
            settings["dataset"] = {**settings["dataset"], **place}
        given = loader.get("given", [])
        notes.add("loader", id=number, where=notes.site(loader["frames"]), given=given, **settings)
    for entry in facts.get("config", ()):
        file = str(folder / entry["file"]) if entry.get("file") else None
        notes.add("config", **{"given": entry["source"] != "argparse", **entry, "file": file})
    torch = dict(facts.get("torch", {}))
    torch["set_by"] = {
        name: [value, str(folder / place.partition(": ")[0]), notes.line(place)]
        for name, (value, place) in torch.get("set_by", {}).items()
    }
    notes.add("torch", **torch)
    noted = ("optimizer", "module", "unread", "iterator", "batch", "memory")
    for name in (*noted, "dataset_changed", "dataset_written"):
        for entry in facts.get(name, ()):
            notes.add(name, **entry)
    rows = [
        (
            KINDS[kind],
            facts.get("flags", 0) | FLAGS.get(kind, 0),
            notes.site(frames),
            2 if kind == "fetched_late" else 1,
        )
        for kind, sites in facts.get("rows", {}).items()
        for frames in sites
    ]
    table = np.zeros(len(rows), ROW_DTYPE)
    for at, (kind, flags, site, obj) in enumerate(rows):
        table[at]["kind"], table[at]["flags"], table[at]["site"], table[at]["obj"] = kind, flags, site, obj
    for frames in facts.get("sites", ()):
        notes.site(frames)
    argv = facts.get("argv", ["train.py"])
    notes.add("process", cwd=str(folder), argv=argv, env=facts.get("env", {}))
    loaded = [folder / name for name in facts.get("loaded", ())]
    notes.add("files", files=[str(path) for path in loaded])
    for path in sorted(set(folder.rglob("*.py")) - set(loaded)):
        data = path.read_bytes()
        notes.add("source", file=str(path), sha256=hashlib.sha256(data).hexdigest(), text="")
    process = Process(
        pid=1, ppid=0, role="main", rank=0, start_ns=0, end_ns=1, rows=table, notes=notes.by_kind
    )  # fmt: skip
    loop = facts.get("loop")
    return Scene(
        process=process,
        command=tuple(facts.get("command", ["python", *argv])),
        settings=tuple(
            Setting(name=name, configured=configured, in_effect=effect, differs=configured != effect)
            for name, (configured, effect) in facts.get("settings", {}).items()
        ),
        roles=dict(enumerate(facts.get("roles", ()), 1)),
        lead=facts.get("lead", 1),
        fed=facts.get("fed", {}),
        loop=notes.place(loop) if loop else None,
        times=dict.fromkeys(facts.get("where", {}), facts.get("times", 40)),
        passes=facts.get("passes", 1),
        where={remedy: notes.place(place) for remedy, place in facts.get("where", {}).items()},
    )


FLAGS = {"forward": row.FORWARD_GRAD | row.FORWARD_PARAMS, "scored": row.FORWARD_PARAMS}
FLAGS |= {"read": row.SYNC_FLOAT, "read_whole": row.SYNC_WHOLE, "fetched_late": row.TRANSFER_NON_BLOCKING}


class _Notes:
    """Notes as a probe would have written them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_kind: dict[str, list[dict[str, Any]]] = {}

    def add(self, note: str, **fields: Any) -> None:
        self.by_kind.setdefault(note, []).append({"note": note, "t": 0, **fields})

    def line(self, place: str) -> int:
        file, _, text = place.partition(": ")
        source = (self.folder / file).read_text().splitlines()
        return next(number for number, line in enumerate(source, 1) if text in line)

    def place(self, named: str) -> Place:
        return Place(file=str(self.folder / named.partition(": ")[0]), line=self.line(named))

    def site(self, frames: list[str]) -> int:
        found = [self._frame(frame) for frame in frames]
        number = len(self.by_kind.get("site", ())) + 1
        node = found[-1][1]
        (file, line, func, func_line, col), _ = found[-1]
        end = {"end_line": node.end_lineno, "end_col": node.end_col_offset}
        place = {"file": file, "line": line, "col": col, "func": func, "func_line": func_line}
        self.add("site", id=number, **place, **end, stack=[list(frame) for frame, _ in found])
        return number

    def _frame(self, named: str) -> tuple[tuple[str, int, str, int, int], ast.Call | ast.For]:
        file, _, text = named.partition(": ")
        text, _, nth = text.partition("#")
        path = self.folder / file
        tree = ast.parse(path.read_bytes())
        calls: list[tuple[ast.Call | ast.For, list[str], int]] = []
        _collect(tree, [], 0, calls)
        calls.sort(key=lambda entry: (entry[0].lineno, entry[0].col_offset, entry[0].end_col_offset))
        fitting = [c for c in calls if _plain(ast.unparse(c[0])).startswith(_plain(text))]
        assert fitting, f"no call {text!r} in {file}"
        node, names, func_line = fitting[int(nth or 1) - 1]
        func = ".".join(names) or "<module>"
        return (str(path), node.lineno, func, func_line or 1, node.col_offset), node


def _collect(
    node: ast.AST, names: list[str], line: int, calls: list[tuple[ast.Call | ast.For, list[str], int]]
) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
            inner = [*names, *(["<locals>"] if line else []), child.name]
            _collect(child, inner, first, calls)
            continue
        if isinstance(child, ast.ClassDef):
            _collect(child, [*names, child.name], 0, calls)
            continue
        if isinstance(child, ast.Call | ast.For):
            calls.append((child, names, line))
        _collect(child, names, line, calls)


def _plain(text: str) -> str:
    return re.sub(r"\s", "", text.replace('"', "'"))


def after_run(facts: dict[str, Any], patch: Patch) -> dict[str, Any]:
    """What a run of the patched sources would have said."""
    again: dict[str, Any] = json.loads(json.dumps(facts))
    new = {one.name: one.value for one in patch.expected}
    if "loader" in again:
        again["loader"]["settings"].update(new)
        again["loader"]["given"] = sorted({*again["loader"].get("given", []), *new})
    for loader in again.get("loaders", [])[:1]:
        loader["settings"].update(new)
    for entry in again.get("config", []):
        entry["value"] = new.get(entry.get("meaning", ""), entry["value"])
    if patch.files:
        again["settings"] = {}
    asked = {word.partition("=")[0] for word in facts["apply"]}
    if asked & {"autocast-bf16", "autocast-fp16"}:
        again["rows"] = {"forward": facts["rows"]["forward"]}
        again["flags"] = row.FORWARD_AUTOCAST
    if asked & {"compile", "channels-last"}:
        again["flags"], again["module"] = row.FORWARD_COMPILED, [{"channels_last": True}]
    if "cache-samples" in asked:
        again["loader"]["settings"]["dataset"] = {"class": "CachedDataset"}
    if "bake" in asked and patch.files:
        again["loader"]["settings"]["dataset"] = {"class": "Baked"}
    if "asynchronous-checkpoint" in asked and patch.files:
        again["rows"] = {"save": [["train.py: async_save("]]}
    if "defer-item" in asked and patch.files:
        again["rows"], again["where"] = {}, {}
    if asked & {"foreach-loop", "foreach-lerp"} and patch.files:
        again["where"] = {}
    if any(one.value == "hotloop.feed.loader.Loader" for one in patch.expected):
        written = any(b"hotloop.feed.Loader(" in new for _, new in patch.files.values())
        name = "hotloop.feed.Loader(" if written else "Loader("
        again["loader"]["frames"] = [f"train.py: {name}"]
    if patch.files and asked & {"less-frequent-evaluation", "less-frequent-checkpoint"}:
        again["where"] = {}
    for flag, entry in again.get("torch", {}).get("set_by", {}).items():
        entry[0] = flag == "cudnn_benchmark"
    return again
