"""A statement about the model, behind the one that makes it: compiled in place, laid out in place."""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import inf
from typing import Any

from hotloop.fix import blocks, calls
from hotloop.fix.flags import torch_name
from hotloop.fix.follow import Follower
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Cannot
from hotloop.measure.places import Frame
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.nodes import is_of_self, last_name


def compiled(plan: Plan, value: Any) -> None:
    """``model.compile()``: in place, so that the names in checkpoints stay."""
    if calls.forwards(plan) and not calls.forwards(plan, without=row.FORWARD_COMPILED):
        raise Already("the model is compiled already")
    value = "reduce-overhead" if plan.remedy == "cuda-graphs" else value
    mode = "" if value in (None, "default") else f'mode="{value}"'
    _behind_model(plan, lambda code, model: f"{model}.compile({mode})")


def channels_last(plan: Plan, value: Any) -> None:
    """``model.to(memory_format=torch.channels_last)``; convolutions hand the layout on."""
    if any(note.get("channels_last") for note in plan.scene.process.notes.get("module", ())):
        raise Already("the model lies with channels last already")
    _behind_model(
        plan, lambda code, model: f"{model}.to(memory_format={torch_name(plan, code)}.channels_last)"
    )


def _behind_model(plan: Plan, statement: Callable[[Code, str], str]) -> None:
    sites = calls.forwards(plan)
    if not sites:
        raise Cannot("the run called no model in your code")
    frames = sites[0].frames
    code, call = plan.scene.call(sites[0])
    if call is None:
        raise Cannot("the call of the model cannot be told", frames[-1].file, frames[-1].line)
    code, node, last = _made(plan, code, call.func, frames, len(frames) - 1)
    if any(last_name(one.func) == "compile" for one in code.nodes(ast.Call, last)):
        write = "switch it on" if plan.remedy in ("compile", "cuda-graphs") else ""
        raise Cannot.at("torch.compile stands here", code, last, write=write)
    blocks.behind(plan, code, last, [statement(code, code.source(node))])


def _made(
    plan: Plan, code: Code, node: ast.expr, frames: tuple[Frame, ...], at: int
) -> tuple[Code, ast.expr, ast.stmt]:
    """The name of the model and the last statement that binds it, through the functions it is passed to; what
    wraps it on a condition (``if distributed: model = DDP(model)``) comes after.
    """
    bound: list[ast.AST] = []
    if isinstance(node, ast.Name):
        bound = [one.node for one in code.bindings(node, node.id)]
        if len(bound) == 1 and isinstance(bound[0], ast.arg):
            passed = Follower(plan.scene, frames).passed(code, bound[0], at)
            if passed is not None:
                return _made(plan, *passed[:2], frames, passed[2] or 0)
    elif is_of_self(node) and (owner := code.class_of(node)) is not None:
        bound = [
            one
            for one in code.nodes(ast.Attribute, owner)
            if isinstance(one.ctx, ast.Store) and code.source(one) == code.source(node)
        ]
    lines = [code.statement_of(one) for one in bound]
    simple = [line for line in lines if isinstance(line, ast.Assign | ast.AnnAssign)]
    first = min(simple, key=code.line, default=None)
    block = code.block_of(first) if first is not None else []
    nested = {id(line) for one in block for line in code.nodes(ast.stmt, one) if line is not one}
    inside = [line for line in simple if line not in block]
    wraps = all(id(line) in nested and _reads(code, line, node) for line in inside)
    if not simple or len(simple) != len(lines) or not wraps:
        raise Cannot.at("where the model is made cannot be told", code, node)
    before = min(map(code.line, inside), default=inf)
    return (
        code,
        node,
        max((line for line in simple if line in block and code.line(line) < before), key=code.line),
    )


def _reads(code: Code, line: ast.Assign | ast.AnnAssign, node: ast.expr) -> bool:
    """Whether what is assigned is made of what the name held."""
    names = code.nodes((ast.Name, ast.Attribute), line.value) if line.value is not None else []
    return any(code.source(one) == code.source(node) for one in names)
