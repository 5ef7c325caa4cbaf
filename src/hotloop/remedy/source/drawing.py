"""A figure's making: the statements beside the call that logs it, which are left out with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import libcst as cst

from hotloop.remedy.source.code import Code, argument, last_name
from hotloop.remedy.source.scene import Cannot

#: Calls that must not be left out with what stands beside them.
ACTS: Final = frozenset(
    ["pop", "popleft", "append", "next", "step", "update", "reset", "get_nowait", "backward", "zero_grad"]
)
_WRITE: Final = "put the making of the figure and its logging under one `if step % N == 0:`"
_DRAWS: Final = frozenset(["add_figure", "savefig", "log_figure"])


def with_its_making(
    code: Code, call: cst.Call, statement: cst.CSTNode, block: Sequence[cst.CSTNode]
) -> list[cst.CSTNode]:
    """The statement that logs a figure, with its neighbours that make, draw or close it. Raises Cannot.

    A figure that is made and not logged would stay open: pyplot keeps it.
    """
    if last_name(call.func) not in _DRAWS:
        return [statement]
    first = last = list(block).index(statement)
    names = _figures(code, call)
    if names:
        made = [at for at, node in enumerate(block[:first]) if names & _bound(code, node)]
        if not made:
            words = f"{min(names)} is not made beside it: unless it is closed, pyplot keeps it"
            raise Cannot(words, str(code.path), code.line(call), write=_WRITE)
        first = made[-1]
        names |= _bound(code, block[first])
    for node in block[first + 1 : last]:
        if not _draws(code, node, names) and not _prepares(code, node):
            words = f"line {code.line(node)} stands between the making of the figure and its logging"
            raise Cannot(words, str(code.path), code.line(call), write=_WRITE)
    while first > 0 and _with_pyplot(code, block[first - 1]):
        first -= 1
    while last + 1 < len(block) and _draws(code, block[last + 1], names):
        last += 1
    nodes = list(block[first : last + 1])
    _read_there_only(code, nodes)
    return nodes


def _figures(code: Code, call: cst.Call) -> set[str]:
    """The names that the call reads its figure from."""
    given = argument(call, "figure", 1)
    if last_name(call.func) == "savefig":
        given = call.func.value if isinstance(call.func, cst.Attribute) else None
    return {given.value} if isinstance(given, cst.Name) and not code.qualified(given) else set()


def _with_pyplot(code: Code, node: cst.CSTNode) -> bool:
    """Whether a simple statement calls something of matplotlib."""
    calls = code.nodes(cst.Call, node) if _is_simple(node) else ()
    return any(code.qualified(call.func).startswith("matplotlib.") for call in calls)


def _draws(code: Code, node: cst.CSTNode, names: set[str]) -> bool:
    """Whether a statement uses pyplot or the figure; or is a loop that does nothing else."""
    if isinstance(node, cst.For):
        reads = any(name.value in names for name in code.nodes(cst.Name, node.iter))
        own = names | ({name.value for name in code.nodes(cst.Name, node.target)} if reads else set())
        return node.orelse is None and all(_draws(code, one, own) for one in node.body.body)
    uses = _is_simple(node) and any(name.value in names for name in code.nodes(cst.Name, node))
    return uses or _with_pyplot(code, node)


def _prepares(code: Code, node: cst.CSTNode) -> bool:
    """Whether a statement gives a name a value, and does nothing else as far as its calls say."""
    calls = {last_name(call.func) for call in code.nodes(cst.Call, node)}
    return _is_simple(node) and bool(_bound(code, node)) and calls.isdisjoint(ACTS)


def _is_simple(node: cst.CSTNode) -> bool:
    """Whether it is one call or assignment."""
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return False
    return isinstance(node.body[0], cst.Expr | cst.Assign)


def _bound(code: Code, node: cst.CSTNode) -> set[str]:
    targets = [target.target for assign in code.nodes(cst.Assign, node) for target in assign.targets]
    return {name.value for target in targets for name in code.nodes(cst.Name, target)}


def _read_there_only(code: Code, nodes: Sequence[cst.CSTNode]) -> None:
    """Raises Cannot where something else needs what is made there."""
    start, end = code.span(nodes[0])[0], code.span(nodes[-1])[1]
    for name in set().union(*(_bound(code, node) for node in nodes)):
        for one in code.assignments(nodes[0], name):
            for access in one.references:
                if not start <= code.span(access.node)[0] < end:
                    words = f"{name} is read elsewhere too"
                    raise Cannot(words, str(code.path), code.line(access.node))
