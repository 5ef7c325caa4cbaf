"""Mixed precision around the forward pass and the loss; float16 with a gradient scaler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import libcst as cst

from hotloop.measure.places import Frame
from hotloop.record import rows as row
from hotloop.remedy.source import calls, layout
from hotloop.remedy.source.code import Code, argument, last_name
from hotloop.remedy.source.flags import torch_name
from hotloop.remedy.source.follow import Follower
from hotloop.remedy.source.halved import called, look_behind
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot, Site

#: What must not run in lower precision, or not twice.
_OUTSIDE = frozenset(["step", "backward", "unscale_"])


def bf16(plan: Plan, value: Any) -> None:
    """``with torch.autocast(device, dtype=torch.bfloat16):``; one that is switched off is switched on."""
    for site in calls.forwards(plan):
        frame = site.frames[-1]
        code = plan.scene.code(frame.file)
        line = _line(code, frame)
        around = code.above(line, cst.With) if line is not None else None
        head = [item.item for item in around.items] if around is not None else []
        switches = [argument(call, "enabled") for call in head if _is_autocast(call)]
        for enabled in [node for node in switches if node is not None][:1]:
            follower = Follower(plan.scene, site.frames, False)
            plan.put(follower.expression(code, enabled, len(site.frames) - 1), "enabled", True)
            return
    _wrapped(plan, "bfloat16")


def _is_autocast(node: cst.CSTNode) -> TypeGuard[cst.Call]:
    return isinstance(node, cst.Call) and last_name(node.func) == "autocast"


def fp16(plan: Plan, value: Any) -> None:
    """The same in float16, with the loss scaled before backward and gradients unscaled before clipping."""
    code, backward = _wrapped(plan, "float16")
    steps = {_statement(plan, site, backward, code) for site in calls.sites_of(plan, row.OPTIMIZER)}
    if len(steps) != 1 or None in steps:
        raise Cannot(
            "the optimizer steps elsewhere, or in several places", str(code.path), code.line(backward)
        )
    step = steps.pop()
    assert step is not None
    optimizer = _receiver(code, step, "step")
    loss = _receiver(code, backward, "backward")
    if optimizer is None or loss is None or code.global_names("scaler"):
        raise Cannot("backward and step are not written plainly", str(code.path), code.line(backward))
    torch = torch_name(plan, code)
    plan.statement(code, f'scaler = {torch}.amp.GradScaler("{plan.scene.device}")')
    for clip in {_statement(plan, site, backward, code) for site in calls.sites_of(plan, row.CLIP)} - {None}:
        assert clip is not None
        layout.before(plan, code, clip, [f"scaler.unscale_({code.source(optimizer)})"])
    plan.replace(code, loss, f"scaler.scale({code.source(loss)})", "the loss is scaled")
    call = next(c for c in code.nodes(cst.Call, step) if last_name(c.func) == "step")
    words = f"scaler.step({code.source(optimizer)})"
    plan.replace(code, call, words, words)
    layout.behind(plan, code, step, ["scaler.update()"])


def _wrapped(plan: Plan, dtype: str) -> tuple[Code, cst.SimpleStatementLine]:
    if calls.forwards(plan) and not calls.forwards(plan, without=row.FORWARD_AUTOCAST):
        raise Already("the forward pass runs under autocast already")
    backwards = calls.sites_of(plan, row.BACKWARD)
    if len(backwards) != 1:
        raise Cannot(f"backward is called in {len(backwards)} places of yours")
    frame = backwards[0].frames[-1]
    code = plan.scene.code(frame.file)
    backward = _line(code, frame)
    if not isinstance(backward, cst.SimpleStatementLine):
        raise Cannot("backward is no statement of its own", frame.file, frame.line)
    block = code.parents[backward]
    body: Sequence[cst.CSTNode] = getattr(block, "body", ())
    starts = [_statement(plan, site, backward, code) for site in calls.forwards(plan)]
    inside = [body.index(one) for one in starts if one is not None and one in body]
    end = body.index(backward) if backward in body else -1
    if not inside or min(inside) >= end:
        raise Cannot("the forward pass and backward do not stand in one block", frame.file, frame.line)
    while end > min(inside) + 1 and _receiver(code, body[end - 1], "zero_grad") is not None:
        end -= 1  # it need not be inside
    wrapped = body[min(inside) : end]
    _check(code, wrapped, frame)
    look_behind(plan, code, wrapped, backward, dtype)
    torch = torch_name(plan, code)
    layout.wrap(plan, code, wrapped, f'with {torch}.autocast("{plan.scene.device}", dtype={torch}.{dtype}):')
    return code, backward


def _check(code: Code, statements: Sequence[cst.CSTNode], frame: Frame) -> None:
    for statement in statements:
        line = code.line(statement)
        if any(_is_autocast(call) for call in code.nodes(cst.Call, statement)):
            raise Cannot("autocast stands here, switched off", frame.file, line)
        if any(last_name(call.func) in _OUTSIDE for call in code.nodes(cst.Call, statement)):
            raise Cannot("a step or another backward stands between forward and backward", frame.file, line)
        for kind in (cst.SimpleString, cst.FormattedString):
            if any("\n" in code.source(text) for text in code.nodes(kind, statement)):
                raise Cannot("a text of several lines stands between forward and backward", frame.file, line)


def _statement(
    plan: Plan, site: Site, beside: cst.SimpleStatementLine, code: Code
) -> cst.SimpleStatementLine | cst.BaseCompoundStatement | None:
    """The statement, in the block of another one, from which a call was made."""
    block = code.parents[beside]
    for frame in reversed(site.frames):
        if frame.file != str(code.path):
            continue
        found: cst.CSTNode | None = _line(code, frame)
        while found is not None and code.parents.get(found) is not block:
            found = code.parents.get(found)
        if isinstance(found, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            return found
    return None


def _line(code: Code, frame: Frame) -> cst.CSTNode | None:
    call = called(code, frame)
    return code.statement_of(call) if call is not None else None


def _receiver(code: Code, statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """``loss`` of the statement ``loss.backward()``; None for anything more."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    only = statement.body[0]
    if not isinstance(only, cst.Expr) or not isinstance(only.value, cst.Call):
        return None
    call = only.value
    plain = not call.args or name == "zero_grad" or (name == "backward" and not argument(call, "gradient", 0))
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != name or not plain:
        return None
    return call.func.value
