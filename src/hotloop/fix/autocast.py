"""Mixed precision around the forward pass and the loss; float16 with a gradient scaler."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, TypeGuard

from hotloop.fix import blocks, calls
from hotloop.fix.flags import torch_name
from hotloop.fix.follow import Follower
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Cannot, Site
from hotloop.measure.places import Frame
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.nodes import argument, last_name

#: What must not run in lower precision, or not twice.
_OUTSIDE = ("step", "backward", "unscale_")


def bf16(plan: Plan, value: Any) -> None:
    """``with torch.autocast(device, dtype=torch.bfloat16):``; one that is switched off is switched on."""
    for site in calls.forwards(plan):
        frame = site.frames[-1]
        code = plan.scene.code(frame.file)
        line = _line(code, frame)
        around = code.above(line, ast.With) if line is not None else None
        head = [item.context_expr for item in around.items] if around is not None else []
        switches = [argument(call, "enabled") for call in head if _is_autocast(call)]
        for enabled in [node for node in switches if node is not None][:1]:
            follower = Follower(plan.scene, site.frames, False)
            plan.put(follower.expression(code, enabled, len(site.frames) - 1), "enabled", True)
            return
    _wrapped(plan, "bfloat16")


def _is_autocast(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and last_name(node.func) == "autocast"


def fp16(plan: Plan, value: Any) -> None:
    """The same in float16, with the loss scaled before backward and gradients unscaled before clipping."""
    code, backward = _wrapped(plan, "float16")
    steps = {_statement(site, backward, code) for site in calls.sites_of(plan, row.OPTIMIZER)}
    step = steps.pop() if len(steps) == 1 else None
    if step is None:
        raise Cannot.at("the optimizer steps elsewhere, or in several places", code, backward)
    optimizer, loss = _receiver(step, "step"), _receiver(backward, "backward")
    if optimizer is None or loss is None or code.global_names("scaler"):
        raise Cannot.at("backward and step are not written plainly", code, backward)
    plan.statement(code, f'scaler = {torch_name(plan, code)}.amp.GradScaler("{plan.scene.device}")')
    for clip in {_statement(site, backward, code) for site in calls.sites_of(plan, row.CLIP)} - {None}:
        assert clip is not None
        blocks.before(plan, code, clip, [f"scaler.unscale_({code.source(optimizer)})"])
    plan.replace(code, loss, f"scaler.scale({code.source(loss)})", "the loss is scaled")
    words = f"scaler.step({code.source(optimizer)})"
    plan.replace(code, step, words, words)
    blocks.behind(plan, code, step, ["scaler.update()"])


def _wrapped(plan: Plan, dtype: str) -> tuple[Code, ast.stmt]:
    """The statements from the forward pass to the loss under autocast, and the one that runs backward."""
    if calls.forwards(plan) and not calls.forwards(plan, without=row.FORWARD_AUTOCAST):
        raise Already("the forward pass runs under autocast already")
    backwards = calls.sites_of(plan, row.BACKWARD)
    if len(backwards) != 1:
        raise Cannot(f"backward is called in {len(backwards)} places of yours")
    frame = backwards[0].frames[-1]
    code = plan.scene.code(frame.file)
    backward = _line(code, frame)
    if not isinstance(backward, ast.Expr | ast.Assign):
        raise Cannot("backward is no statement of its own", frame.file, frame.line)
    body = code.block_of(backward)
    starts = [_statement(site, backward, code) for site in calls.forwards(plan)]
    inside = [body.index(one) for one in starts if one is not None]
    end = body.index(backward)
    if not inside or min(inside) >= end:
        raise Cannot("the forward pass and backward do not stand in one block", frame.file, frame.line)
    while end > min(inside) + 1 and _receiver(body[end - 1], "zero_grad") is not None:
        end -= 1  # it need not be inside
    wrapped = body[min(inside) : end]
    _check(code, wrapped, frame)
    torch = torch_name(plan, code)
    blocks.wrap(plan, code, wrapped, f'with {torch}.autocast("{plan.scene.device}", dtype={torch}.{dtype}):')
    return code, backward


def _check(code: Code, statements: Sequence[ast.stmt], frame: Frame) -> None:
    for statement in statements:
        blocks.require_movable(code, statement)
        for call in code.nodes(ast.Call, statement):
            if _is_autocast(call):
                raise Cannot("autocast stands here, switched off", frame.file, code.line(statement))
            if last_name(call.func) in _OUTSIDE:
                words = "a step or another backward stands between forward and backward"
                raise Cannot(words, frame.file, code.line(statement))


def _statement(site: Site, beside: ast.stmt, code: Code) -> ast.stmt | None:
    """The statement, in the block of another one, from which a call was made."""
    block = code.block_of(beside)
    for frame in reversed(site.frames):
        line = _line(code, frame) if frame.file == str(code.path) else None
        for one in [line, *code.ancestors(line)] if line is not None else ():
            if isinstance(one, ast.stmt) and one in block:
                return one
    return None


def _line(code: Code, frame: Frame) -> ast.stmt | None:
    call = calls.called(code, frame)
    return code.statement_of(call) if call is not None else None


def _receiver(statement: ast.stmt, name: str) -> ast.expr | None:
    """``loss`` of the statement ``loss.backward()``; None for anything more."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != name:
        return None
    given = bool(call.args or call.keywords)
    plain = not given or name == "zero_grad" or (name == "backward" and not argument(call, "gradient", 0))
    return call.func.value if plain else None
