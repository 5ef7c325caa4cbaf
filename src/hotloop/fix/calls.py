"""Keywords of calls that are found by where they ran, or by what they call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot, Site
from hotloop.measure.places import Frame
from hotloop.record import rows as row
from hotloop.remedy.live.optimizer import ROUND_OTHERWISE
from hotloop.source.code import Code
from hotloop.source.nodes import argument, has_spread, last_name, spread_of, targets_of

_BARS: Final = ("tqdm", "trange")
#: What draws a bar anew; ``refresh`` is the second argument of each.
_DRAW: Final = ("set_postfix", "set_postfix_str", "set_description", "set_description_str")


def non_blocking(plan: Plan, value: Any) -> None:
    """``.to(device, non_blocking=True)`` in every call that copied a batch and waited."""

    def waits(code: Code, call: ast.Call) -> bool:
        return last_name(call.func) in ("to", "cuda") and not _says_whether_to_wait(call)

    rows = plan.scene.process.rows
    rows = rows[(rows["kind"] == row.TRANSFER) & (rows["obj"] == 1)]
    waited = plan.scene.sites(rows[(rows["flags"] & row.TRANSFER_NON_BLOCKING) == 0])
    words = "no call of .to() or .cuda() of yours copies batches and waits"
    for code, call in made_at(plan, waited, waits, words):
        plan.keyword(code, call, "non_blocking", "True")
    built = plan.scene.loaders
    if built and not plan.setting(built[0], "pin_memory"):
        plan.remark("without pin_memory=True non_blocking=True changes nothing: add pin-memory")


def _says_whether_to_wait(call: ast.Call) -> bool:
    """Whether ``non_blocking`` is given, by name or by position: behind a device, or a device and a dtype."""
    given = any(isinstance(one, ast.Constant) and isinstance(one.value, bool) for one in call.args)
    many = len(call.args) > (1 if last_name(call.func) == "cuda" else 2)
    return given or many or has_spread(call) or argument(call, "non_blocking") is not None


def optimizer(plan: Plan, value: Any) -> None:
    """``fused=True`` or ``foreach=True`` for each call that builds an optimizer: for one, or for as many as
    the run had.
    """
    name, other = ("foreach", "fused") if plan.remedy == "foreach" else ("fused", "foreach")
    refused = ROUND_OTHERWISE if name == "foreach" else ()
    notes = plan.scene.process.notes.get("optimizer", ())
    calls = [
        (code, call)
        for cls in sorted({str(note.get("class")) for note in notes})
        for code, call in calls_in(plan, cls)
        if code.qualified(call.func).startswith("torch.optim.")
    ]
    if not calls:
        raise Cannot("no call builds it plainly")
    if len(calls) not in (1, len(notes)):
        raise Cannot(f"the optimizer is built in {len(calls)} places of yours")
    for code, call in [one for one in calls if not _is_on(*one, name)] or calls:
        if last_name(call.func) in refused:
            words = f"{last_name(call.func)}: its multi-tensor kernels round differently"
            raise Cannot.at(words, code, call, write="leave the optimizer as it is")
        if _is_on(code, call, other):
            raise Cannot.at(f"{other}=True is given", code, call)
        if spread_of(call) is not None:
            words = f"what ** spreads may hold {name} or {other} already"
            raise Cannot.at(words, code, call, write=f"add {name}=True to what is spread")
        plan.keyword(code, call, name, "True")
    plan.expect_noted("optimizer", name, True)


def _is_on(code: Code, call: ast.Call, name: str) -> bool:
    given = argument(call, name)
    return given is not None and code.source(given) == "True"


def compile_dynamic(plan: Plan, value: Any) -> None:
    """``torch.compile(..., dynamic=True)``."""
    calls = [one for one in calls_in(plan, "compile") if one[0].qualified(one[1].func) == "torch.compile"]
    if len(calls) != 1:
        raise Cannot(f"torch.compile is called in {len(calls)} places of yours")
    plan.keyword(*calls[0], "dynamic", "True")


def throttled_progress(plan: Plan, value: Any) -> None:
    """``tqdm(..., mininterval=1.0)``; what a bar shows is set without drawing it."""
    found = 0
    for code, call in calls_in(plan):
        if has_spread(call):
            continue
        if _is_bar(code, call):
            given = argument(call, "mininterval")
            if given is None or _below_a_second(code.source(given)):
                plan.keyword(code, call, "mininterval", "1.0")
                found += 1
        elif _draws(code, call, ("refresh",)):
            where = f"{code.path.name}:{code.line(call)}"
            plan.remark(f"{plan.remedy}: {where} still draws the bar: take {code.source(call)} out")
        elif _draws(code, call, _DRAW):
            given = argument(call, "refresh", 1)
            if given is None:
                plan.keyword(code, call, "refresh", "False")
                found += 1
            elif code.source(given) == "True":
                plan.replace(code, given, "False", "refresh: True → False")
                found += 1
    if not found:
        raise Cannot("no bar of tqdm that could be drawn less often stands in your code")


def _is_bar(code: Code, call: ast.Call) -> bool:
    package, _, name = code.qualified(call.func).rpartition(".")
    return package.partition(".")[0] == "tqdm" and name in _BARS


def _below_a_second(source: str) -> bool:
    try:
        return float(source) < 1.0
    except ValueError:
        return False


def _draws(code: Code, call: ast.Call, by: Collection[str]) -> bool:
    """Whether a method draws a bar: of a name that one was bound to in the function, or ``self.NAME``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in by:
        return False
    bar = call.func.value
    scope = code.function_of(call) if isinstance(bar, ast.Name) else None
    return any(code.source(one) == code.source(bar) for one in _bars(code, scope))


def _bars(code: Code, scope: ast.AST | None) -> Iterator[ast.expr]:
    """What bars are bound to: ``bar = tqdm(...)``, ``with tqdm(...) as bar``."""
    for call in code.nodes(ast.Call, scope):
        if _is_bar(code, call):
            above = code.parents[call]
            yield from targets_of(above)
            if isinstance(above, ast.withitem) and above.optional_vars is not None:
                yield above.optional_vars


def calls_in(plan: Plan, name: str = "") -> list[tuple[Code, ast.Call]]:
    """Every call in the files that ran, or those of a name."""
    found: list[tuple[Code, ast.Call]] = []
    for file in plan.scene.files():
        try:
            code = plan.scene.code(file)
        except Cannot:
            continue
        found += [(code, call) for call in (code.calls(name) if name else code.nodes(ast.Call))]
    return found


def made_at(
    plan: Plan, sites: Sequence[Site], wanted: Callable[[Code, ast.Call], bool], words: str
) -> list[tuple[Code, ast.Call]]:
    """The wanted calls among those that were made at sites. Raises Cannot with these words for none."""
    calls = [plan.scene.call(site) for site in sites]
    found = [(code, call) for code, call in calls if call is not None and wanted(code, call)]
    if not found:
        place = sites[0].frames[-1] if sites else None
        raise Cannot(words, place.file if place else "", place.line if place else 0)
    return found


def called(code: Code, frame: Frame) -> ast.Call | None:
    """The call a frame was in; of several that begin there the outermost."""
    return code.call_at(frame.line, frame.col) or next(
        (call for call in code.nodes(ast.Call) if code.begin(call) == (frame.line, frame.col)), None
    )


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
