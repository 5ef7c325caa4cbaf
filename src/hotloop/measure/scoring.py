"""Evaluations that only the source tells: forwards without gradients whose results nothing of training uses.

They leave ``model.eval()`` out, are of a copy that is not trained itself, or run in every step as a teacher
does. And the other way round: a model in evaluation mode that makes what it is trained on (self-play, a
rollout).
"""

from __future__ import annotations

import ast

import numpy as np

from hotloop.measure.dataflow import Source, reach
from hotloop.measure.evaluation import Events
from hotloop.measure.loop import LOGGING_TEXT, Loop, told_by_names
from hotloop.measure.places import Frame, Places, Stack
from hotloop.measure.spans import Bools, Spans, Table
from hotloop.measure.statements import FunctionNode, base_name, holders, names_set, own_nodes, statements_of
from hotloop.measure.stepping import Stepping
from hotloop.record import rows as row

#: In more steps than this it is part of the step: a teacher's answer, an action, pseudo labels.
PART_OF_STEP_RATIO = 0.5
#: Methods that change the mode of a model, called for their effect.
_MODES = frozenset(["eval", "train", "requires_grad_"])


def candidates(spans: Spans, events: Events, eval_forward: Bools, stepping: Stepping) -> Bools:
    """[rows] forwards without gradients between steps: of trained modules in training mode, and of others (an
    average of the weights) in evaluation mode.
    """
    forward = (spans.kind == row.FORWARD) & events.used & ~eval_forward
    training = forward & ((spans.flags & row.FORWARD_TRAINING) != 0)
    grad = (spans.flags & row.FORWARD_GRAD) != 0
    trained = np.zeros(row.U16_MAX + 1, np.bool_)
    trained[spans.obj[training & grad]] = True
    in_span = (spans.start >= stepping.span[0]) & (spans.start < stepping.span[1])
    asked = np.where(training, trained[spans.obj], (spans.flags & row.FORWARD_PARAMS) != 0)
    return np.asarray(forward & ~grad & asked & in_span)


def scoring(found: Bools, spans: Spans, events: Events, stepping: Stepping, loop: Loop) -> Bools:
    """Those of the forwards found that only score the model, as far as the source tells."""
    result = np.zeros(len(spans), np.bool_)
    for site in np.unique(spans.site[found]):
        rows = found & (spans.site == site)
        steps = len(np.unique(stepping.of(spans.start[rows])))
        stack = loop.places.sites.get(int(site))
        rare = steps <= PART_OF_STEP_RATIO * max(4, len(stepping))
        marked = bool(events.eval_flags[rows].all())
        if stack is not None and _scores(loop, stack, rare=rare, marked=marked):
            result |= rows
    return result


def playing(found: Bools, spans: Spans, loop: Loop) -> Bools:
    """Those of the forwards in evaluation mode whose results come back into training as its batches, as far
    as the source tells.
    """
    result = np.zeros(len(spans), np.bool_)
    for site in np.unique(spans.site[found]):
        stack = loop.places.sites.get(int(site))
        called = loop.statement(stack) if stack is not None else None
        function = loop.function(called[0].function) if called else None
        if called is not None and function is not None and called[1]:
            purposes = function.purposes_at((called[0].line, called[0].col))
            if purposes and set(purposes) == {"input"} and all(_hands_back(loop, one) for one in called[1]):
                result |= found & (spans.site == site)
    return result


def collecting(found: Bools, spans: Spans, samples: Table, places: Places) -> tuple[Bools, Bools]:
    """Those of the forwards without gradients by which a framework asks for actions while it collects what
    is trained on (``collect_rollouts``), and those of its evaluations: told by the functions of the samples
    beside each.
    """
    collected, scored = np.zeros(len(spans), np.bool_), np.zeros(len(spans), np.bool_)
    index = np.flatnonzero(found)
    if not len(samples) or not len(index):
        return collected, scored
    stacks, which = np.unique(samples.value, return_inverse=True)
    told = [_phase_by_names(places.stacks.get(int(stack))) for stack in stacks]
    collects = np.array([phase == "data_wait" for phase in told], np.bool_)[which]
    evaluates = np.array([phase == "evaluation" for phase in told], np.bool_)[which]
    after = np.searchsorted(samples.start, spans.start[index])
    before = np.maximum(after - 1, 0)
    after = np.minimum(after, len(samples) - 1)
    collected[index] = collects[after] | (collects[before] & ~evaluates[after])
    scored[index] = (evaluates[after] | evaluates[before]) & ~collected[index]
    return collected, scored


def _phase_by_names(stack: Stack | None) -> str:
    return told_by_names(stack.library)[1] if stack is not None else ""


def _hands_back(loop: Loop, frame: Frame) -> bool:
    """Whether a function returns or yields what it makes at a line; a comprehension does."""
    if frame.func.endswith(">"):
        return True
    source = loop.source(frame.file)
    node = source.function(frame.func, frame.func_line) if source is not None else None
    statements = tuple(statements_of(node)) if node is not None else ()
    at = set(holders(statements, (frame.line, frame.col)))
    reached = at | reach(statements, at)[0]
    return any(statements[one].returns for one in reached)


def _scores(loop: Loop, stack: Stack, *, rare: bool, marked: bool) -> bool:
    """Whether a forward only scores; one in most steps needs its mode (``marked``) or the loop to say so."""
    apart = rare or (marked and _only_named(loop, stack))
    return (apart and _only_scores(loop, stack)) or _scores_in_place(loop, stack)


def _only_scores(loop: Loop, stack: Stack) -> bool:
    """Whether a statement of the loop has called functions that keep to themselves, and nothing of training
    uses what they return.
    """
    called = loop.statement(stack)
    function = loop.function(called[0].function) if called else None
    if called is None or function is None or not called[1] or not function.tells:
        return False
    purposes = function.purposes_at((called[0].line, called[0].col))
    if not purposes or not set(purposes) <= {"other", "metrics"}:
        return False
    named = [frame for frame in called[1] if not frame.func.endswith(">")]
    return bool(named) and all(_keeps_to_itself(loop.source(frame.file), frame) for frame in named)


def _scores_in_place(loop: Loop, stack: Stack) -> bool:
    """Whether a statement of the loop itself calls the model, and what it makes is only compared, printed or
    collected: then it is no part of the step, however often it runs.
    """
    called = loop.statement(stack)
    return called is not None and not called[1] and _only_named(loop, stack)


def _only_named(loop: Loop, stack: Stack) -> bool:
    """Whether what a statement of the loop makes with the model is only compared, printed or collected."""
    called = loop.statement(stack)
    function = loop.function(called[0].function) if called else None
    if called is None or function is None or not function.tells:
        return False
    at = holders(function.statements, (called[0].line, called[0].col))
    if len(at) != 1 or function.purposes[at[0]] not in ("other", "metrics"):
        return False
    used = {at[0], *function.of_evaluation}
    return all(_only_names(function.statements[one].node) for one in used)


def _only_names(node: ast.AST) -> bool:
    """Whether a statement does no more than give names to values, ask for them, or show or collect them."""
    match node:
        case ast.Assign(targets=targets):
            return all(isinstance(part, ast.Name) for target in targets for part in _parts(target))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return isinstance(target, ast.Name)
        case ast.Expr(value=ast.Call() as call):
            collects = isinstance(call.func, ast.Attribute) and call.func.attr == "append"
            return collects or LOGGING_TEXT.search(ast.unparse(call)) is not None
    return isinstance(node, ast.If | ast.With)


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def _keeps_to_itself(source: Source | None, frame: Frame) -> bool:
    """Whether a function changes nothing but its own variables."""
    node = source.function(frame.func, frame.func_line) if source is not None else None
    if node is None or isinstance(node, ast.Module):
        return False
    own = _own_names(node)
    for child in own_nodes(node):
        if isinstance(child, ast.Global | ast.Nonlocal | ast.Delete | ast.Yield | ast.YieldFrom | ast.Await):
            return False
        targets = child.targets if isinstance(child, ast.Assign) else [getattr(child, "target", None)]
        stores = isinstance(child, ast.Assign | ast.AugAssign | ast.AnnAssign)
        if stores and any(_reaches_out(target, own) for target in targets if target is not None):
            return False
        if isinstance(child, ast.Expr) and not _is_harmless(child.value, own):
            return False
    return True


def _own_names(node: FunctionNode) -> frozenset[str]:
    """Names that a function makes itself: not its arguments."""
    names: set[str] = set()
    for child in own_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
    arguments = () if isinstance(node, ast.Module) else node.args.args
    return frozenset(names - {argument.arg for argument in arguments})


def _reaches_out(target: ast.expr, own: frozenset[str]) -> bool:
    return any(not isinstance(part, ast.Name) and not names_set(part) <= own for part in _parts(target))


def _is_harmless(value: ast.expr, own: frozenset[str]) -> bool:
    """A constant, a message, a model's mode, or a method of what the function made."""
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.Constant)
    if LOGGING_TEXT.search(ast.unparse(value)):
        return True
    if not isinstance(value.func, ast.Attribute):
        return False
    return value.func.attr in _MODES or base_name(value.func.value) in own
