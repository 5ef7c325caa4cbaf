"""A statement about the model, behind the one that makes it: compiled in place, laid out in place."""

from __future__ import annotations

from typing import Any

import libcst as cst

from hotloop.measure.places import Frame
from hotloop.record import rows as row
from hotloop.remedy.source import calls, layout
from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.flags import torch_name
from hotloop.remedy.source.follow import Follower
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot


def compiled(plan: Plan, value: Any) -> None:
    """``model.compile()``: in place, so that the names in checkpoints stay."""
    if calls.forwards(plan) and not calls.forwards(plan, without=row.FORWARD_COMPILED):
        raise Already("the model is compiled already")
    mode = "" if value in (None, "default") else f'mode="{value}"'
    _behind_model(plan, lambda code, model: f"{model}.compile({mode})")


def cuda_graphs(plan: Plan, value: Any) -> None:
    """``model.compile(mode="reduce-overhead")``."""
    compiled(plan, "reduce-overhead")


def channels_last(plan: Plan, value: Any) -> None:
    """``model.to(memory_format=torch.channels_last)``; convolutions hand the layout on."""
    if any(note.get("channels_last") for note in plan.scene.process.notes.get("module", ())):
        raise Already("the model lies with channels last already")
    _behind_model(
        plan, lambda code, model: f"{model}.to(memory_format={torch_name(plan, code)}.channels_last)"
    )


def _behind_model(plan: Plan, statement: Any) -> None:
    sites = calls.forwards(plan)
    if not sites:
        raise Cannot("the run called no model in your code")
    frames = sites[0].frames
    frame = frames[-1]
    code = plan.scene.code(frame.file)
    call = code.call_at(frame.line, frame.col, sites[0].end)
    if call is None:
        raise Cannot("the call of the model cannot be told", frame.file, frame.line)
    code, node, last = _made(plan, code, call.func, frames, len(frames) - 1)
    if any(last_name(one.func) == "compile" for one in code.nodes(cst.Call, last)):
        _switched(plan, code, last, frames)
        return
    layout.behind(plan, code, last, [statement(code, code.source(node))])


def _switched(plan: Plan, code: Code, line: cst.CSTNode, frames: tuple[Frame, ...]) -> None:
    """``torch.compile(model) if SWITCH else model``: the switch is what to change."""
    choices = list(code.nodes(cst.IfExp, line))
    if plan.remedy not in ("compile", "cuda-graphs") or len(choices) != 1:
        raise Already("torch.compile stands here already", str(code.path), code.line(line))
    follower = Follower(plan.scene, frames, False)
    plan.put(follower.expression(code, choices[0].test, follower.frame_of(code, line)), "compile", True)


def _made(
    plan: Plan, code: Code, node: cst.BaseExpression, frames: tuple[Frame, ...], at: int
) -> tuple[Code, cst.BaseExpression, cst.CSTNode]:
    """The name of the model and the last statement that binds it, through the functions it is passed to."""
    bound: list[cst.CSTNode] = []
    if isinstance(node, cst.Name):
        bound = [one.node for one in code.assignments(node, node.value)]
        if len(bound) == 1 and isinstance(bound[0], cst.Param):
            passed = Follower(plan.scene, frames).passed(code, bound[0], at)
            if passed is not None:
                return _made(plan, *passed[:2], frames, passed[2] or 0)
    elif isinstance(node, cst.Attribute) and last_name(node.value) == "self":
        owner = code.above(node, cst.ClassDef)
        bound = [
            target.target
            for assign in (code.nodes(cst.Assign, owner) if owner is not None else ())
            for target in assign.targets
            if code.source(target.target) == code.source(node)
        ]
    lines = [code.statement_of(one) for one in bound]
    simple = [line for line in lines if isinstance(line, cst.SimpleStatementLine)]
    blocks = {id(code.parents[line]) for line in simple}
    if not simple or len(simple) != len(lines) or len(blocks) != 1:
        raise Cannot("where the model is made cannot be told", str(code.path), code.line(node))
    return code, node, max(simple, key=code.line)
