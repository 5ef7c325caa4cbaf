"""Arguments of the loaders that train: followed to where they are written, changed there."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotloop.fix import reading
from hotloop.fix.edits import Expected
from hotloop.fix.follow import Absent, Entry, Follower, Literal, definition
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Built, Cannot
from hotloop.measure.loaders import changes_of, written_of
from hotloop.measure.settings import same
from hotloop.record.recording import Note
from hotloop.source.code import Code
from hotloop.source.nodes import argument, has_spread, last_name
from hotloop.source.written import called_as, holds, refused_beside, spelled_by
from hotloop.torch_facts import LOADER_POSITIONS, OF_WORKERS

#: What a loader may be made by, beside a class of its own name.
_MAKERS = frozenset(["DataLoader", "StatefulDataLoader", "Loader", "MultiEpochsDataLoader"])
#: Arguments that torch refuses without workers.
_NONE_WITHOUT_WORKERS = ("prefetch_factor", "multiprocessing_context")


def for_all(rewrite: Callable[[Plan, Any, Built], None]) -> Callable[[Plan, Any], None]:
    """The rewrite of one loader done to every loader that trains, as the live form does.

    One that cannot be changed, or has another value than the loader the remedy is for, is said and left.
    """

    @functools.wraps(rewrite)
    def done(plan: Plan, value: Any) -> None:
        lead, before = driving(plan), len(plan.changes)
        trains = plan.scene.roles.get
        others = [o for o in plan.scene.loaders if o.id != lead.id and trains(o.id) == lead.role == "train"]
        there = None
        try:
            rewrite(plan, value, lead)
        except Already as already:
            there = already
        for other in others:
            try:
                with plan.whole():
                    rewrite(plan, value, _as_built(plan, other))
            except Already:
                pass
            except Cannot as cannot:
                frame = other.site.frames[-1]
                place = f"{Path(frame.file).name}:{frame.line}"
                plan.remark(f"{plan.remedy}: the loader built at {place} stays as it is: {cannot.why}")
        if there is not None and len(plan.changes) == before:
            raise there
        if others and plan.remedy in ("num-workers", "no-workers"):
            plan.remark(
                f"{plan.remedy}: loaders that draw from one generator, and are gone through together, draw "
                "their orders in another sequence with workers than without"
            )

    return done


@for_all
def setting(plan: Plan, value: Any, built: Built) -> None:
    """The argument of the remedy's name; ``num_workers=N`` where a configured number never arrived: the code
    is made to read it.
    """
    _give(plan, built, plan.remedy.replace("-", "_"), True if plan.remedy == "pin-memory" else value)


@for_all
def no_workers(plan: Plan, value: Any, built: Built) -> None:
    """``num_workers=0``, without what needs workers."""
    _give(plan, built, "num_workers", 0)
    if built.settings.get("persistent_workers"):
        _give(plan, built, "persistent_workers", False)
        plan.remark(
            "no-workers: torch draws a seed for each new iterator and none for workers that stay: from the "
            "second epoch on the order differs"
        )
    for name in _NONE_WITHOUT_WORKERS:
        if name in built.given and built.settings.get(name) is not None:
            _give(plan, built, name, None)
    if built.settings.get("timeout"):
        _give(plan, built, "timeout", 0)


def evaluation_workers(plan: Plan, value: Any) -> None:
    """``num_workers=N`` in the call that builds the loader an evaluation waits for, and none that trains."""
    built = driving(plan)
    code, call, _ = call_of(plan, built)
    if built.role != "evaluation":
        raise Cannot.at("no evaluation was seen to wait for its loader", code, call)
    given = argument(call, "num_workers", LOADER_POSITIONS.index("num_workers"))
    plain = given is None or (isinstance(given, ast.Constant) and given is argument(call, "num_workers"))
    beside = _beside(plan, Absent(code, call, "num_workers"), built)
    if any(plan.scene.roles.get(one.id) == "train" for one in beside) or not plain or has_spread(call):
        raise Cannot.at("other loaders may take num_workers from here", code, call)
    if refusal := _unfit_for_workers(plan, built, value):
        raise Cannot.at(refusal[0], code, call, write=refusal[1])
    along = [name for name in (*_NONE_WITHOUT_WORKERS, "timeout") if name in built.given]
    if along and not value:
        raise Cannot.at(f"{along[0]} means nothing without workers", code, call)
    plan.keyword(code, call, "num_workers", repr(value))
    frames = built.site.frames
    plan.expected.append(Expected(note="loader", name="num_workers", value=value, frames=frames))


@for_all
def prefetch_factor(plan: Plan, value: Any, built: Built) -> None:
    """``prefetch_factor=N``."""
    _need_workers(plan, built, "prefetch_factor")
    _give(plan, built, "prefetch_factor", value)


@for_all
def persistent_workers(plan: Plan, value: Any, built: Built) -> None:
    """``persistent_workers=True``."""
    _need_workers(plan, built, "persistent_workers")
    if changes := changes_of(plan.scene.process, built.id):
        frame = built.site.frames[-1]
        words = f"{', '.join(changes)} of the dataset changed between epochs, which only fresh workers see"
        write = "what changes in shared memory (torch.multiprocessing.Value), then persistent_workers=True"
        raise Cannot(words, frame.file, frame.line, write=write)
    _give(plan, built, "persistent_workers", True)
    plan.remark(
        "persistent-workers: torch draws no new seed per epoch, so order and augmentation differ; nothing "
        "that the script changes in the dataset after the first batch is seen by workers that stay"
    )


@for_all
def in_order_false(plan: Plan, value: Any, built: Built) -> None:
    """``in_order=False``."""
    _need_workers(plan, built, "in_order")
    _give(plan, built, "in_order", False)


def driving(plan: Plan) -> Built:
    """The loader that the finding speaks of, as the user built it. Raises Cannot."""
    if not plan.scene.loaders:
        raise Cannot("the run built no DataLoader in your code")
    if (lead := plan.scene.asked_of(plan.remedy)) is None:
        raise Cannot("the loader that is waited for is not built in your code")
    return _as_built(plan, lead)


def _as_built(plan: Plan, built: Built) -> Built:
    """A loader, or the user's one from which a library built it anew, as Accelerate and Lightning do."""
    if _is_plain(plan, built):
        return built
    unused = [one for one in plan.scene.loaders if one.role == "unused" and _alike(one, built)]
    ours = [one for one in unused if _is_plain(plan, one)]
    return ours[0] if len(ours) == 1 else built


def _is_plain(plan: Plan, built: Built) -> bool:
    try:
        code, call = plan.scene.call(built.site)
    except Cannot:
        return False
    return call is not None and _makes(code, call, built)


def _alike(one: Built, other: Built) -> bool:
    left, right = ((built.settings.get("dataset") or {}) for built in (one, other))
    return bool(left) and all(left.get(key) == right.get(key) for key in ("class", "module", "len"))


def call_of(plan: Plan, built: Built) -> tuple[Code, ast.Call, int | None]:
    """The call that built a loader, and its frame. Raises Cannot."""
    at = len(built.site.frames) - 1
    frame = built.site.frames[at]
    code, call = plan.scene.call(built.site)
    if call is None:
        raise Cannot("the call that built the loader cannot be told", frame.file, frame.line)
    if not _makes(code, call, built):
        words = f"the loader is built by {code.source(call.func)}(), not by a call of DataLoader"
        raise Cannot(words, frame.file, frame.line)
    where, owner = definition(plan.scene, code, call.func)
    if isinstance(owner, ast.ClassDef):
        inner = [c for c in where.nodes(ast.Call, owner) if last_name(c.func) == "__init__"]
        if len(inner) > 1:
            raise Cannot.at(f"{owner.name} hands its arguments on in several places", where, owner)
        if inner:
            return where, inner[0], None
    return code, call, at


def _makes(code: Code, call: ast.Call, built: Built) -> bool:
    """Whether a call names the loader's class."""
    known = {*_MAKERS, built.kind}
    return last_name(call.func) in known or code.qualified(call.func).rpartition(".")[2] in known


def _need_workers(plan: Plan, built: Built, name: str) -> None:
    if not plan.setting(built, "num_workers"):
        frame = built.site.frames[-1]
        raise Cannot(f"{name} means nothing without workers: add num-workers", frame.file, frame.line)


def _give(plan: Plan, built: Built, name: str, value: Any) -> None:
    current = built.settings.get(name)
    if not same(current, driving(plan).settings.get(name)):
        raise Cannot(f"{name} is {current} there")
    try:
        code, call, at, its_name = _holder(plan, built, name, value) or (*call_of(plan, built), name)
    except Cannot:
        entry = _meant(plan, name, current)  # ``HfArgumentParser`` reads it
        if entry is None or entry.note.get("source") == "argparse" or same(current, value):
            raise
        plan.put(entry, name, value)
        plan.expect(built, name, value)
        return
    written_down = plan.scene.configured(name)
    wanted = written_down.get("value") if value is None and written_down else value
    if wanted is None and name not in _NONE_WITHOUT_WORKERS:
        raise Cannot.at(f"which {name} is not known: give a value", code, call)
    if same(current, wanted):
        raise Already.at(f"{name} is {current} already", code, call)
    if name == "num_workers" and (refusal := _unfit_for_workers(plan, built, wanted)):
        raise Cannot.at(refusal[0], code, call, write=refusal[1])
    follower = Follower(plan.scene, built.site.frames, current)
    try:
        target = follower.argument(code, call, at, its_name, name in built.given)
    except Cannot as cannot:
        entry = _meant(plan, name, current) if name in built.given else None
        if entry is None and has_spread(call) and argument(call, its_name) is None:
            write = f"set {its_name}={wanted} in what the call is given by * or **, not beside it"
            raise Cannot(cannot.why, cannot.file, cannot.line, write=write) from None
        if entry is None:
            raise
        target = entry
    note = None if isinstance(target, Entry) else written_down
    if note is None or not _read(plan, target, name, wanted, note):
        _compare(target, current)
        others = _beside(plan, target, built)
        for other in others if name in OF_WORKERS and wanted else ():
            if not plan.setting(other, "num_workers"):
                words, write = refused_beside(name, wanted)
                raise Cannot.at(words, code, call, write=write)
        plan.put(target, name, wanted)
        for other in others:
            plan.give(other, name, wanted)
        if others:
            plan.remark(f"the same call builds {len(others)} more of this run's loaders")
    plan.expect(built, name, wanted)


def _unfit_for_workers(plan: Plan, built: Built, wanted: Any) -> tuple[str, str] | None:
    """Why the dataset's samples would be others with workers, and what to write instead."""
    if built.settings.get("iterable"):
        words = "an iterable dataset: its workers decide what is read, and in which order"
        split = "each worker's __iter__ gives all of it unless it takes its part by get_worker_info()"
        return words, f"num_workers={wanted} by hand: {split}"
    if built.settings.get("num_workers"):
        return None
    if names := written_of(plan.scene.process, built.id):
        words = (
            f"{', '.join(names)} of the dataset changes while it is gone through, which workers do not see"
        )
        return (
            words,
            f"what the loop writes in shared memory (tensor.share_memory_()), then num_workers={wanted}",
        )
    if held := (built.settings.get("dataset") or {}).get("open_file"):
        words = f"what the dataset holds open must not be shared by processes: {held}"
        return words, f"open it in each worker, when it is first read, and num_workers={wanted} by hand"
    method, main = built.settings.get("multiprocessing_context"), plan.scene.main
    if method and main and "__main__" not in plan.scene.text(main).text:
        words = f'{method} has each worker import {main.name}, which has no `if __name__ == "__main__":`'
        return words, f"put the training below one, and num_workers={wanted}"
    return None


def _meant(plan: Plan, name: str, current: Any) -> Entry | None:
    """The one configured value that means a setting and is what was in effect, where the way to it is lost.

    The check by running tells.
    """
    notes = {
        (note.get("file"), note.get("key")): note
        for note in plan.scene.config
        if note.get("meaning") == name and same(note.get("value"), current)
    }
    return Entry(next(iter(notes.values()))) if len(notes) == 1 else None


def _holder(plan: Plan, built: Built, name: str, value: Any) -> tuple[Code, ast.Call, int | None, str] | None:
    """The call that gives a library the arguments of the loaders it builds, its frame, and the name there.

    None where the user's code builds the loader. Raises Cannot where there are several such calls.
    """
    if _is_plain(plan, built):
        return None
    spelled = spelled_by(built.by)
    if spelled is None:
        return _handed_on(plan, built, name)
    found = [
        (code, call)
        for code in plan.scene.codes(spelled.holder)
        for call in code.nodes(ast.Call)
        if holds(spelled, last_name(call.func))
    ]
    frame = built.site.frames[-1]
    its_name = spelled.names.get(name)
    write = f"{its_name or name}={value} in {spelled.words}" if its_name else ""
    if its_name is None or len(found) != 1:
        several = f"{spelled.holder} is called {len(found)} times in your code" if found else ""
        words = several or f"{built.by.partition('.')[0]} builds the loader"
        raise Cannot(words, frame.file, frame.line, write=write)
    code, call = found[0]
    return code, call, Follower(plan.scene, built.site.frames).callers.frame_of(code, call), its_name


def _handed_on(plan: Plan, built: Built, name: str) -> tuple[Code, ast.Call, int, str] | None:
    """The call of a library's function that built a loader, if it is given the argument by its own name
    (``create_loader(dataset, num_workers=4)``). The check by running tells whether it reaches the loader.
    """
    code, call = plan.scene.call(built.site)
    if call is None or last_name(call.func) != called_as(built.by) or name not in built.given:
        return None
    return (code, call, len(built.site.frames) - 1, name) if argument(call, name) is not None else None


def _compare(target: Any, current: Any) -> None:
    """A literal that is not what was in effect is not where the value came from."""
    if isinstance(target, Literal):
        old = target.code.source(target.node)
        if old != "None" and not same(old.strip("'\""), current):
            line = target.code.line(target.node)
            raise Cannot(f"{old} stands here, {current} was in effect", str(target.code.path), line)


def _read(plan: Plan, target: Any, name: str, wanted: Any, note: Note) -> bool:
    """Write the expression that reads the configured value; change that where another one is wanted.

    False where the configuration is not at hand: the value itself is to be written then.
    """
    node = target.node if isinstance(target, Literal) else target.call
    expression = reading.expression(plan.scene, target.code, node, note)
    if expression is None:
        where = Path(str(note.get("file"))).name if note.get("file") else note.get("option")
        plan.remark(
            f"the configured {note.get('key')} ({where}) is not at hand where the loader is built: "
            "still nothing reads it"
        )
        return False
    plan.put(target, name, wanted, expression)
    if not same(note.get("value"), wanted):
        plan.put(Entry(note), name, wanted)
    return True


def _beside(plan: Plan, target: Literal | Absent | Entry, built: Built) -> list[Built]:
    """The other loaders of the run that are built by the call that is changed."""
    if isinstance(target, Entry):
        return []
    node = target.node if isinstance(target, Literal) else target.call
    lines = range(target.code.line(node), target.code.end(node)[0] + 1)
    if isinstance(target, Literal):
        call = target.code.above(node, ast.Call)
        lines = range(target.code.line(call), lines[-1] + 1) if call is not None else lines
    mine = {f for f in built.site.frames if f.file == str(target.code.path) and f.line in lines}
    return [o for o in plan.scene.loaders if o.id != built.id and mine & set(o.site.frames)]
