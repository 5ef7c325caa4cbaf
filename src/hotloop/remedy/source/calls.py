"""Keywords of calls that are found by where they ran, or by what they call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import libcst as cst

from hotloop.record import rows as row
from hotloop.remedy.live.optimizer import ROUND_OTHERWISE
from hotloop.remedy.source.code import Code, argument, has_spread, last_name
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot, Site


def non_blocking(plan: Plan, value: Any) -> None:
    """``.to(device, non_blocking=True)`` in every call that copied a batch and waited."""
    sites = plan.scene.transfers()
    found = 0
    for site in sites:
        frame = site.frames[-1]
        code = plan.scene.code(frame.file)
        call = code.call_at(frame.line, frame.col, site.end)
        if call is None or last_name(call.func) not in ("to", "cuda"):
            continue
        if not _says_whether_to_wait(call):
            plan.keyword(code, call, "non_blocking", "True")
            found += 1
    if not found:
        place = sites[0].frames[-1] if sites else None
        words = "no call of .to() or .cuda() of yours copies batches and waits"
        raise Cannot(words, place.file if place else "", place.line if place else 0)
    built = plan.scene.loaders
    if built and not plan.settings.get("pin_memory", built[0].settings.get("pin_memory")):
        plan.remark("without pin_memory=True non_blocking=True changes nothing: add pin-memory")


def _says_whether_to_wait(call: cst.Call) -> bool:
    """Whether ``non_blocking`` is given, by name or by position: behind a device, or a device and a dtype."""
    placed = [one.value for one in call.args if one.keyword is None]
    given = any(isinstance(one, cst.Name) and one.value in ("True", "False") for one in placed)
    many = len(placed) > (1 if last_name(call.func) == "cuda" else 2)
    return given or many or has_spread(call) or argument(call, "non_blocking") is not None


def fused_optimizer(plan: Plan, value: Any) -> None:
    """``fused=True``."""
    for code, call in calls_in(plan):
        sparse = argument(call, "sparse")
        if (
            sparse is not None
            and last_name(call.func).startswith("Embedding")
            and code.source(sparse) != "False"
        ):
            raise Cannot(
                "gradients of this layer are sparse: no fused kernel takes them",
                str(code.path),
                code.line(call),
                write="leave the optimizer as it is",
            )
    _optimizer(plan, "fused", "foreach")


def foreach(plan: Plan, value: Any) -> None:
    """``foreach=True``."""
    _optimizer(plan, "foreach", "fused", ROUND_OTHERWISE)


def _optimizer(plan: Plan, name: str, other: str, refused: Collection[str] = ()) -> None:
    """A keyword for each call that builds an optimizer: for one, or for as many as the run had."""
    notes = plan.scene.process.notes.get("optimizer", ())
    classes = {str(note.get("class")) for note in notes}
    calls = [
        (code, call)
        for code, call in calls_in(plan)
        if code.qualified(call.func).startswith("torch.optim.") and last_name(call.func) in classes
    ]
    if not calls:
        raise Cannot("no call builds it plainly")
    if len(calls) not in (1, len(notes)):
        raise Cannot(f"the optimizer is built in {len(calls)} places of yours")
    for code, call in [one for one in calls if not _is_on(*one, name)] or calls:
        _given(plan, code, call, name, other, refused)
    plan.expect_noted("optimizer", name, True)


def _is_on(code: Code, call: cst.Call, name: str) -> bool:
    given = argument(call, name)
    return given is not None and code.source(given) == "True"


def _given(plan: Plan, code: Code, call: cst.Call, name: str, other: str, refused: Collection[str]) -> None:
    if last_name(call.func) in refused:
        words = f"{last_name(call.func)}: its multi-tensor kernels round differently"
        raise Cannot(words, str(code.path), code.line(call), write="leave the optimizer as it is")
    if _is_on(code, call, other):
        raise Cannot(f"{other}=True is given", str(code.path), code.line(call))
    if any(arg.star == "**" for arg in call.args):
        words = f"what ** spreads may hold {name} or {other} already"
        raise Cannot(words, str(code.path), code.line(call), write=f"{name}=True among what is spread")
    plan.keyword(code, call, name, "True")


def set_to_none(plan: Plan, value: Any) -> None:
    """``zero_grad()`` without ``set_to_none=False``."""
    found = 0
    for code, call in calls_in(plan):
        if last_name(call.func) != "zero_grad":
            continue
        given = argument(call, "set_to_none", 0)
        if given is not None and code.source(given) == "False":
            plan.replace(code, given, "True", "set_to_none: False → True")
            found += 1
    if not found:
        raise Cannot("no zero_grad(set_to_none=False) stands in your code")


def compile_dynamic(plan: Plan, value: Any) -> None:
    """``torch.compile(..., dynamic=True)``."""
    calls = [(code, call) for code, call in calls_in(plan) if code.qualified(call.func) == "torch.compile"]
    if len(calls) != 1:
        raise Cannot(f"torch.compile is called in {len(calls)} places of yours")
    plan.keyword(*calls[0], "dynamic", "True")


def calls_in(plan: Plan) -> Iterable[tuple[Code, cst.Call]]:
    """Every call in the files that ran."""
    for file in plan.scene.files():
        try:
            code = plan.scene.code(file)
        except Cannot:
            continue
        yield from ((code, call) for call in code.nodes(cst.Call))


def forwards(plan: Plan, without: int = 0) -> list[Site]:
    """Where training called the model, the most frequent first; without rows that have a flag."""
    rows = plan.scene.process.rows
    wanted = row.FORWARD_GRAD | row.FORWARD_PARAMS
    flags = rows["flags"] & (wanted | without)
    return plan.scene.sites(rows[(rows["kind"] == row.FORWARD) & (flags == wanted)])


def sites_of(plan: Plan, kind: int) -> list[Site]:
    """Where rows of a kind came from, the most frequent first."""
    rows = plan.scene.process.rows
    return plan.scene.sites(rows[rows["kind"] == kind])
