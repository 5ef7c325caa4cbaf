"""Arguments of the driving loader: followed to where they are written, changed there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import libcst as cst

from hotloop.measure.loaders import changes_of, turns_of, written_of
from hotloop.measure.settings import same
from hotloop.record.recording import Note
from hotloop.remedy.source import reading
from hotloop.remedy.source.code import Code, argument, has_spread, last_name
from hotloop.remedy.source.follow import Absent, Entry, Follower, Literal
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.readers import Step, readers
from hotloop.remedy.source.scene import Already, Built, Cannot
from hotloop.written import OF_WORKERS, called_as, holds, refused_beside, spelled_by

#: What a loader may be made by, beside a class of its own name.
_MAKERS = frozenset(["DataLoader", "StatefulDataLoader", "Loader", "MultiEpochsDataLoader"])
#: Places that a note lists.
_MOST_READERS = 4
#: Arguments that torch refuses without workers.
_NONE_WITHOUT_WORKERS = ("prefetch_factor", "multiprocessing_context")


def num_workers(plan: Plan, value: Any) -> None:
    """``num_workers=N``; where a configured number never arrived, the code is made to read it."""
    _give(plan, "num_workers", value)
    _remark_turns(plan, "num-workers")


def no_workers(plan: Plan, value: Any) -> None:
    """``num_workers=0``, without what needs workers."""
    built = driving(plan)
    _give(plan, "num_workers", 0)
    if built.settings.get("persistent_workers"):
        _give(plan, "persistent_workers", False)
    for name in _NONE_WITHOUT_WORKERS:
        if name in built.given and built.settings.get(name) is not None:
            _give(plan, name, None)
    if built.settings.get("timeout"):
        _give(plan, "timeout", 0)
    _remark_turns(plan, "no-workers")


def _remark_turns(plan: Plan, remedy: str) -> None:
    """Say where the order of samples does not stay, and with it what the loop draws."""
    if names := turns_of(plan.scene.process, driving(plan).id):
        plan.remark(
            f"{remedy}: the order of samples does not stay here: it is drawn from {' and '.join(names)} by "
            "turns with others, of whom workers run ahead; order and what the others draw are as under "
            "another seed (a generator of its own for the sampler keeps them)"
        )


def prefetch_factor(plan: Plan, value: Any) -> None:
    """``prefetch_factor=N``."""
    _need_workers(plan, "prefetch_factor")
    _give(plan, "prefetch_factor", value)


def persistent_workers(plan: Plan, value: Any) -> None:
    """``persistent_workers=True``."""
    _need_workers(plan, "persistent_workers")
    built = driving(plan)
    if changes := changes_of(plan.scene.process, built.id):
        frame = built.site.frames[-1]
        words = f"{', '.join(changes)} of the dataset changed between epochs, which only fresh workers see"
        write = "what changes in shared memory (torch.multiprocessing.Value), then persistent_workers=True"
        raise Cannot(words, frame.file, frame.line, write=write)
    _give(plan, "persistent_workers", True)
    plan.remark(
        "persistent-workers: torch draws no new seed per epoch, so order and augmentation differ; nothing "
        "that the script changes in the dataset after the first batch is seen by workers that stay"
    )


def pin_memory(plan: Plan, value: Any) -> None:
    """``pin_memory=True``."""
    _give(plan, "pin_memory", True)


def in_order_false(plan: Plan, value: Any) -> None:
    """``in_order=False``."""
    _need_workers(plan, "in_order")
    _give(plan, "in_order", False)


def batch_size(plan: Plan, value: Any) -> None:
    """``batch_size=N``; the learning rate is the user's."""
    _give(plan, "batch_size", value)


def driving(plan: Plan) -> Built:
    """The loader that feeds training, as the user built it; of several that which the finding speaks of.

    Raises Cannot.
    """
    loaders = plan.scene.loaders
    if not loaders:
        raise Cannot("the run built no DataLoader in your code")
    lead = plan.scene.asked_of(plan.remedy)
    if lead is None:
        raise Cannot("the loader that is waited for is not built in your code")
    if _is_plain(plan, lead):
        return lead
    # A library built it anew from one of the user's, as Accelerate and Lightning do.
    ours = [one for one in loaders if one.role == "unused" and _is_plain(plan, one) and _alike(one, lead)]
    return ours[0] if len(ours) == 1 else lead


def _is_plain(plan: Plan, built: Built) -> bool:
    frame = built.site.frames[-1]
    try:
        code = plan.scene.code(frame.file)
    except Cannot:
        return False
    call = code.call_at(frame.line, frame.col, built.site.end)
    return call is not None and _makes(code, call, built)


def _alike(one: Built, other: Built) -> bool:
    left, right = ((built.settings.get("dataset") or {}) for built in (one, other))
    return bool(left) and all(left.get(key) == right.get(key) for key in ("class", "module", "len"))


def call_of(plan: Plan, built: Built) -> tuple[Code, cst.Call, int | None]:
    """The call that built a loader, and its frame. Raises Cannot."""
    at = len(built.site.frames) - 1
    frame = built.site.frames[at]
    code = plan.scene.code(frame.file)
    call = code.call_at(frame.line, frame.col, built.site.end)
    if call is None:
        raise Cannot("the call that built the loader cannot be told", frame.file, frame.line)
    if not _makes(code, call, built):
        words = f"the loader is built by {code.source(call.func)}(), not by a call of DataLoader"
        raise Cannot(words, frame.file, frame.line)
    where, owner = Follower(plan.scene, built.site.frames).definition(code, call.func)
    if isinstance(owner, cst.ClassDef):
        inner = [c for c in where.nodes(cst.Call, owner) if last_name(c.func) == "__init__"]
        if len(inner) > 1:
            words = f"{owner.name.value} hands its arguments on in several places"
            raise Cannot(words, str(where.path), where.line(owner))
        if inner:
            return where, inner[0], None
    return code, call, at


def _makes(code: Code, call: cst.Call, built: Built) -> bool:
    """Whether a call names the loader's class, or a partial of it."""
    known = {*_MAKERS, built.kind}
    name = last_name(call.func)
    if name in known or code.qualified(call.func).rpartition(".")[2] in known:
        return True
    if isinstance(call.func, cst.Name):
        for one in code.assignments(call.func, name):
            line = code.statement_of(one.node)
            for inner in code.nodes(cst.Call, line) if line is not None else ():
                made = inner.args[0].value if inner.args else None
                if last_name(inner.func) == "partial" and made is not None and last_name(made) in known:
                    return True
    return isinstance(call.func, cst.Call) and _partial_of(call.func, known)


def _partial_of(call: cst.Call, known: set[str]) -> bool:
    return last_name(call.func) == "partial" and bool(call.args) and last_name(call.args[0].value) in known


def _need_workers(plan: Plan, name: str) -> None:
    built = driving(plan)
    if not plan.settings.get("num_workers", built.settings.get("num_workers")):
        frame = built.site.frames[-1]
        raise Cannot(f"{name} means nothing without workers: add num-workers", frame.file, frame.line)


def _give(plan: Plan, name: str, value: Any) -> None:
    built = driving(plan)
    current = built.settings.get(name)
    try:
        code, call, at, its_name = _holder(plan, built, name, value) or (*call_of(plan, built), name)
    except Cannot:
        entry = _read_by_a_library(plan, name, current)
        if entry is None or same(current, value):
            raise
        plan.put(entry, name, value)
        plan.expect(built, name, value)
        return
    written_down = plan.scene.configured(name)
    wanted = written_down.get("value") if value is None and written_down else value
    if wanted is None and name not in _NONE_WITHOUT_WORKERS:
        raise Cannot(f"which {name} is not known: give a value", str(code.path), code.line(call))
    if same(current, wanted):
        raise Already(f"{name} is {current} already", str(code.path), code.line(call))
    if name == "num_workers" and built.settings.get("iterable"):
        words = "an iterable dataset: its workers decide what is read, and in which order"
        split = "each worker's __iter__ gives all of it unless it takes its part by get_worker_info()"
        raise Cannot(words, str(code.path), code.line(call), write=f"num_workers={wanted} by hand: {split}")
    names = written_of(plan.scene.process, built.id)
    if name == "num_workers" and names and not current:
        of = ", ".join(names)
        words = f"{of} of the dataset changes while it is gone through, which workers do not see"
        write = f"what the loop writes in shared memory (tensor.share_memory_()), then num_workers={wanted}"
        raise Cannot(words, str(code.path), code.line(call), write=write)
    held = (built.settings.get("dataset") or {}).get("open_file")
    if name == "num_workers" and held and not current:
        words = f"what the dataset holds open must not be shared by processes: {held}"
        write = f"open it in each worker, when it is first read, and num_workers={wanted} by hand"
        raise Cannot(words, str(code.path), code.line(call), write=write)
    follower = Follower(plan.scene, built.site.frames, current)
    try:
        target = follower.argument(code, call, at, its_name, name in built.given)
    except Cannot as cannot:
        entry = _meant(plan, name, current) if name in built.given else None
        if entry is None and has_spread(call) and argument(call, its_name) is None:
            words = f"set {its_name}={wanted} in what the call is given by * or **, not beside it"
            write = words + _configured_at(plan, name, current)
            raise Cannot(cannot.why, cannot.file, cannot.line, write=write) from None
        if entry is None:
            raise
        target, follower.way = entry, []
    if written_down is not None and not isinstance(target, Entry):
        read = _read(plan, follower, target, name, wanted, written_down)
    else:
        read = False
    if not read:
        _compare(target, current)
        others = _beside(plan, target, built)
        if name in OF_WORKERS and wanted:
            _with_workers(plan, name, wanted, others, code, call)
        plan.put(target, name, wanted)
        plan.beside.update({(other.id, name): wanted for other in others})
        _remark(plan, target, others, follower.way, (code, argument(call, its_name) or call))
    plan.expect(built, name, wanted)


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


def _configured_at(plan: Plan, name: str, current: Any) -> str:
    """Where configuration holds values that may be this setting, in words."""
    places = {
        f"{Path(str(note['file'])).name}{':' + str(note['line']) if note.get('line') else ''} {note['key']}"
        for note in plan.scene.config
        if note.get("meaning") == name and note.get("file") and same(note.get("value"), current)
    }
    return f" ({' or '.join(sorted(places))})" if places else ""


def _read_by_a_library(plan: Plan, name: str, current: Any) -> Entry | None:
    """The one entry of a configuration file that means a setting of a loader which no call of the user's
    code is given: ``HfArgumentParser`` reads it. The check by running tells.
    """
    entry = _meant(plan, name, current)
    return entry if entry is not None and entry.note.get("source") != "argparse" else None


def _holder(plan: Plan, built: Built, name: str, value: Any) -> tuple[Code, cst.Call, int | None, str] | None:
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
        for call in code.nodes(cst.Call)
        if holds(spelled, last_name(call.func))
    ]
    frame = built.site.frames[-1]
    its_name = spelled.names.get(name)
    write = f"{its_name or name}={value} in {spelled.holder}" if its_name else ""
    if its_name is None or len(found) != 1:
        several = f"{spelled.holder} is called {len(found)} times in your code" if found else ""
        words = several or f"{built.by.partition('.')[0]} builds the loader"
        raise Cannot(words, frame.file, frame.line, write=write)
    code, call = found[0]
    return code, call, Follower(plan.scene, built.site.frames).frame_of(code, call), its_name


def _handed_on(plan: Plan, built: Built, name: str) -> tuple[Code, cst.Call, int, str] | None:
    """The call of a library's function that built a loader, if it is given the argument by its own name
    (``create_loader(dataset, num_workers=4)``). The check by running tells whether it reaches the loader.
    """
    at = len(built.site.frames) - 1
    frame = built.site.frames[at]
    code = plan.scene.code(frame.file)
    call = code.call_at(frame.line, frame.col, built.site.end)
    if call is None or last_name(call.func) != called_as(built.by) or name not in built.given:
        return None
    given = any(one.keyword is not None and one.keyword.value == name for one in call.args)
    return (code, call, at, name) if given else None


def _compare(target: Any, current: Any) -> None:
    """A literal that is not what was in effect is not where the value came from."""
    if isinstance(target, Literal):
        old = target.code.source(target.node)
        if old != "None" and not same(old.strip("'\""), current):
            line = target.code.line(target.node)
            raise Cannot(f"{old} stands here, {current} was in effect", str(target.code.path), line)


def _read(plan: Plan, follower: Follower, target: Any, name: str, wanted: Any, note: Note) -> bool:
    """Write the expression that reads the configured value; change that where another one is wanted.

    False where the configuration is not at hand: the value itself is to be written then.
    """
    # A default is made before there is a configuration: the call that did not give it is the place.
    target = (isinstance(target, Literal) and target.ungiven) or target
    node = target.node if isinstance(target, Literal) else target.call
    expression = reading.expression(target.code, node, follower, note)
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


def _remark(
    plan: Plan,
    target: Literal | Absent | Entry,
    others: Sequence[Built],
    way: Sequence[Step],
    asked: tuple[Code, cst.CSTNode],
) -> None:
    """Say who else reads the value that was followed from what is ``asked`` on this way."""
    if not isinstance(target, Absent):
        key = str(target.note.get("key")) if isinstance(target, Entry) else ""
        found = readers(plan.scene, way, tuple(key.split(".")) if key else (), *asked)
        places = list(dict.fromkeys(f"{Path(file).name}:{line}" for file, line in found))
        shown = ", ".join(places[:_MOST_READERS]) + (", ..." if len(places) > _MOST_READERS else "")
        named = key or (target.name if isinstance(target, Literal) else "") or "the value"
        if len(places) > (not way):  # where no way is known, one of them is it
            plan.remark(f"{named} is read at {shown}" + " too" * bool(way))
    if others:
        plan.remark(f"the same call builds {len(others)} more of this run's loaders")


def _beside(plan: Plan, target: Literal | Absent | Entry, built: Built) -> list[Built]:
    """The other loaders of the run that are built by the call that is changed."""
    if isinstance(target, Entry):
        return []
    node = target.node if isinstance(target, Literal) else target.call
    lines = range(target.code.line(node), target.code.end(node)[0] + 1)
    if isinstance(target, Literal):
        call = target.code.above(node, cst.Call)
        lines = range(target.code.line(call), lines[-1] + 1) if call is not None else lines
    mine = {f for f in built.site.frames if f.file == str(target.code.path) and f.line in lines}
    return [o for o in plan.scene.loaders if o.id != built.id and mine & set(o.site.frames)]


def _with_workers(
    plan: Plan, name: str, value: Any, others: Sequence[Built], code: Code, call: cst.Call
) -> None:
    """Raises Cannot where a loader that is built by the same call has no workers: torch refuses it there."""
    for other in others:
        if not plan.beside.get((other.id, "num_workers"), other.settings.get("num_workers")):
            words, write = refused_beside(name, value)
            raise Cannot(words, str(code.path), code.line(call), write=write)
