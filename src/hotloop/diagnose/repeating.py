"""What one hot line of the input allows: results that are kept, random draws, what makes it cheaper."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name, making_lines
from hotloop.diagnose.evidence import Evidence, reachable, spot
from hotloop.diagnose.groups import LineGroup
from hotloop.diagnose.line_kinds import decodes, is_lock, is_random, may_vary, opens, sleeps
from hotloop.diagnose.source import dataset_text, function_text
from hotloop.measure.steps import LineCost, LoaderUse

REMEDY: Final = "memoize"
#: Asked for another result each time, by number or one after the other, or called once.
_NEVER: Final = ("__getitem__", "__getitems__", "__next__", "__iter__", "__init__", "main")
#: A text with one of these keeps results already, gives several, or is called for what it does.
_DOES: Final = re.compile(
    r"@.*\b(lru_cache|cache|cached|memoize|property|contextmanager|njit|jit|compile)\b|\byield\b|\bawait\b"
    r"|^\s*self\.[\w.]+ [+*/-]?= |\bprint\(|\.write\w*\(|\bglobal\s+\w|\bget_worker_info\b|\.backward\("
    r"|\.savefig\(",
    re.M,
)
#: A function that takes something beside itself and gives something back.
_GIVES: Final = re.compile(r"def \w+\(\s*(self\s*,\s*)?(?!self\b)\**\w.*\breturn\s+\S", re.S)


def repeated(
    evidence: Evidence, hot: LineGroup | None, loader: LoaderUse | None, *, collate: bool = False
) -> str:
    """The functions around the spot whose results may be kept, as ``memoize`` wants them named: the one
    reached first and the innermost; "" where there is none.

    Samples of a dataset that draws nothing are kept whole, by their number: no function is named for those.
    """
    if hot is None or tried(evidence):
        return ""
    if loader is not None and not (collate or loader.settings.get("iterable")):
        text = dataset_text(evidence, loader)
        if not (is_random(text) or "transform" in text):
            return ""
    never = {*_NEVER, *({collate_name(loader.settings)} - {*DEFAULT_COLLATE} if loader is not None else ())}
    trains = {at.in_function for at in evidence.steps.driving}
    top = max(hot.lines, key=lambda line: line.seconds)
    named: list[str] = []
    for place in (*reversed(top.callers), top.place):
        known = reachable(place, place.function)
        if (
            not known
            or place.in_function in trains
            or place.function.rpartition(".")[2] in never
            or known in named
        ):
            continue
        if may_be_kept(function_text(evidence, place)):
            named.append(known)
    return ",".join(dict.fromkeys([*named[:1], *named[-1:]]))


def tried(evidence: Evidence) -> bool:
    """Whether this run kept results already, or found that it must not."""
    return any(one["id"] == REMEDY for one in evidence.process.notes.get("remedy", ()))


def may_be_kept(text: str) -> bool:
    """Whether a function of this text takes something, gives something back, and does nothing else."""
    return bool(_GIVES.search(text)) and not _DOES.search(text) and not is_random(text)


def drawn(evidence: Evidence) -> bool:
    """Whether samples that feed training draw random numbers, as far as generators and sources show it."""
    loaders = [one for one in evidence.steps.loaders if one.role == "train"]
    return bool(generators(evidence)) or any(
        draws(evidence, making_lines(evidence.steps, one), one) for one in loaders
    )


def generators(evidence: Evidence) -> tuple[str, ...]:
    """Those that samples that feed training were seen to draw from, where a run watched them (``tune``)."""
    feeding = {one.dataset.get("class") for one in evidence.steps.loaders if one.role == "train"}
    notes = [note for one in evidence.recording.processes for note in one.notes.get("draws", ())]
    return tuple(sorted({name for one in notes if one["dataset"] in feeding for name in one["generators"]}))


def draws(evidence: Evidence, lines: Iterable[LineCost], loader: LoaderUse | None) -> bool:
    """Whether what makes the samples at these lines may draw random numbers: the functions they were reached
    through, and a library's transforms.
    """
    if loader is not None and may_vary(map(str, loader.dataset.get("transforms") or ())):
        return True
    trains = {at.in_function for at in evidence.steps.driving}
    places = {place.in_function: place for line in lines for place in (line.place, *line.callers)}
    return any(
        is_random(function_text(evidence, place))
        for function, place in places.items()
        if function not in trains
    )


def advice(named: str) -> str:
    """What to do with the functions named, "" where there are none."""
    if not named:
        return ""
    first = named.split(",")[-1].rpartition(":")[2]
    return f" Where {first}() is given the same arguments again, keep what it gave: --apply {REMEDY}={named}"


def remedies(named: str) -> tuple[str, ...]:
    """The remedy, where functions are named."""
    return (REMEDY,) if named else ()


def data(named: str) -> dict[str, str]:
    """What a finding carries for it."""
    return {"function": named} if named else {}


def cheaper(evidence: Evidence, hot: LineGroup, loader: LoaderUse | None = None) -> str:
    """The advice."""
    place = spot(hot.place)
    if any(map(is_lock, hot.lines)):
        return (
            f"Workers wait for each other at the lock of {place}, and more of them would not help: open what "
            "it guards once in each worker, hold it for less, or fetch many samples at once."
        )
    if hot.on_cpu_ratio < 0.3 or sleeps(hot.source):
        return (
            f"Take the waiting out of {place}: fetch many samples at once, keep what was fetched, or prepare "
            "it before training; workers hide what remains."
        )
    if opens(hot.source):
        return (
            f"Open once what {place} opens for every sample: in each worker, when it is first asked for a "
            "sample, and keep it open."
        )
    if decodes(hot.source, hot.library):
        return (
            f"Decode less at {place}: store the images once at the size that is trained on, or decoded, as "
            "arrays; decode JPEG at a fraction of the size (PIL's draft(), cv2.IMREAD_REDUCED_COLOR_2); "
            "workers share what remains."
        )
    once = "do it once before training and store the result"
    if draws(evidence, hot.lines, loader):
        once = "do once before training what comes before the first random draw"
    if hot.nature == "python":
        return f"Replace the Python work at {place} by one array operation per batch, or {once}."
    return f"Make {place} cheaper: {once}, do it per batch instead of per sample, or do it on the device."
