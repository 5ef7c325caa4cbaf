"""``checkpoint(function, x, use_reentrant=False)`` written as ``function(x)``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import libcst as cst

from hotloop.diagnose.limits import Limits
from hotloop.feed.budget import total_memory_bytes
from hotloop.remedy.source.code import Code, Node, argument, is_self, last_name
from hotloop.remedy.source.layout import enclosed
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot
from hotloop.remedy.source.twice import BY_HAND, is_changed_at, require_nothing_kept
from hotloop.remedy.source.values import bound_to_self, text_of, value_of
from hotloop.units import share

_ONE: Final = "torch.utils.checkpoint.checkpoint"
_MANY: Final = "torch.utils.checkpoint.checkpoint_sequential"
#: Arguments that are not the function's, by the value that changes nothing of what is computed; None: any.
_SETTINGS: Final = {
    "use_reentrant": "False", "preserve_rng_state": "True", "determinism_check": None, "debug": "False",
    "early_stop": None,
}  # fmt: skip
#: Parts of names of what changes its buffers in each forward.
_RUNNING: Final = ("batchnorm", "batch_norm", "spectral_norm", "spectralnorm", "running_stats", "quantize")
#: Packages without modules of their own that keep anything.
_STATELESS: Final = sys.stdlib_module_names | {
    "torch", "numpy", "tqdm", "yaml", "einops", "wandb", "tensorboard", "tensorboardX", "matplotlib", "PIL",
    "tiktoken", "tokenizers", "datasets", "omegaconf", "hydra", "rich", "psutil", "hotloop",
}  # fmt: skip


def no_checkpointing(plan: Plan, value: Any) -> None:
    """What is given to ``checkpoint`` is called instead, where that computes the same."""
    found = list(_calls(plan))
    if not found:
        raise _enabled(plan)
    _require_room(plan)
    codes = list(plan.scene.codes(""))
    _require_no_buffers_change(plan, codes)
    require_nothing_kept(codes, found)
    for code, call in found:
        _require_same(code, call)
    written: dict[int, tuple[Code, list[cst.Call]]] = {}
    for code, call in found:
        written.setdefault(id(code), (code, []))[1].append(call)
        plan.replace(code, call, _plain(code, call), f"{last_name(call.func)} left out")
    for code, calls in written.values():
        _drop_imports(plan, code, codes, {call.func for call in calls})


def _calls(plan: Plan) -> Iterator[tuple[Code, cst.Call]]:
    """Every call of it in the user's files. Raises Cannot where it is handed on instead."""
    for code in plan.scene.codes("checkpoint"):
        for call in code.nodes(cst.Call):
            if code.qualified(call.func) in (_ONE, _MANY):
                yield code, call
                continue
            for arg in call.args:
                if code.qualified(arg.value) in (_ONE, _MANY):
                    words = "checkpoint is handed on here: what it is given cannot be told"
                    raise Cannot(words, str(code.path), code.line(call))
        for assign in code.nodes(cst.Assign):
            if code.qualified(assign.value) in (_ONE, _MANY):
                words = "checkpoint gets another name here"
                raise Cannot(words, str(code.path), code.line(assign))


def _enabled(plan: Plan) -> Cannot:
    """Why nothing can be left out where no call of the user's is one."""
    for code in plan.scene.codes("gradient_checkpointing_enable"):
        for call in code.nodes(cst.Call):
            if last_name(call.func) == "gradient_checkpointing_enable":
                words = "what the model's own code does with it cannot be told"
                write = f"leave {code.source(call)} out where the activations fit"
                return Cannot(words, str(code.path), code.line(call), write=write)
    if any(note.get("checkpointing") for note in plan.scene.process.notes.get("module", ())):
        return Cannot("no call of torch.utils.checkpoint stands in your code")
    return Already("nothing is computed twice")


# -- whether it may be left out --------------------------------------------------------------------------


def _require_room(plan: Plan) -> None:
    """Raises Cannot where what would be kept has perhaps no room: less than half of the memory is free."""
    notes = plan.scene.process.notes.get("memory", [])
    peak = max((float(note.get("device_peak") or 0) for note in notes), default=0.0)
    whole = plan.scene.device_bytes
    if not peak:
        sizes = (float(note.get(name) or 0) for note in notes for name in ("host_rss", "VmHWM"))
        peak, whole = max(sizes, default=0.0), float(total_memory_bytes())
    if not peak or not whole:
        raise Cannot("how much memory the run took is not known", write=BY_HAND)
    if peak >= Limits().recompute_memory_ratio * whole:
        words = f"the run took {share(peak / whole)} of the memory: what would be kept may have no room"
        raise Cannot(words, write="leave it in, or out of the smaller stages only")


def _require_no_buffers_change(plan: Plan, codes: list[Code]) -> None:
    """Raises Cannot where a forward that runs once would leave other buffers behind than two."""
    notes = plan.scene.process.notes.get("module", ())
    if notes and not any(note.get("buffer_bytes") for note in notes):
        return
    own = {one.name.value for code in codes for one in code.nodes(cst.ClassDef)}
    for foreign in (name for note in notes for name in note.get("buffer_classes", ()) if name not in own):
        raise Cannot(f"what {foreign} keeps is updated twice in each step now, once without", write=BY_HAND)
    for code in codes:
        for call in code.nodes(cst.Call):
            given = (
                argument(call, "track_running_stats", 4) if "InstanceNorm" in last_name(call.func) else None
            )
            if given is not None and code.source(given) != "False":
                words = "its running statistics are updated twice in each step now, once without"
                raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)
        for text in code.nodes(cst.SimpleString):
            value = text_of(text) or ""
            if value.isidentifier() and any(part in value.lower() for part in _RUNNING):
                words = f"{value}: what it keeps is updated twice in each step now, once without"
                raise Cannot(words, str(code.path), code.line(text), write=BY_HAND)
        for name in code.names():
            if any(part in name.value.lower() for part in _RUNNING):
                words = f"{name.value}: what it keeps is updated twice in each step now, once without"
                raise Cannot(words, str(code.path), code.line(name), write=BY_HAND)
        statements: list[cst.Import | cst.ImportFrom] = [*code.nodes(cst.Import)]
        for statement in [*statements, *code.nodes(cst.ImportFrom)]:
            for package in _packages(code, statement):
                if package not in _STATELESS and plan.scene.module(package, code.path) is None:
                    words = f"what modules of {package} keep from one forward to the next cannot be told"
                    raise Cannot(words, str(code.path), code.line(statement), write=BY_HAND)
    buffers = {name for code in codes for name in _buffers(code)}
    for code in codes:
        for node in code.nodes(cst.Attribute):
            if node.attr.value in buffers and _changes(code, node):
                words = f"the buffer {node.attr.value} is changed here: twice in each step now, once without"
                raise Cannot(words, str(code.path), code.line(node), write=BY_HAND)


def _packages(code: Code, statement: cst.Import | cst.ImportFrom) -> Iterator[str]:
    if isinstance(statement, cst.Import):
        yield from (code.source(one.name).partition(".")[0] for one in statement.names)
    elif not statement.relative and statement.module is not None:
        yield code.source(statement.module).partition(".")[0]


def _buffers(code: Code) -> Iterator[str]:
    for call in code.nodes(cst.Call):
        if last_name(call.func) == "register_buffer":
            given = argument(call, "name", 0)
            name = text_of(given) if given is not None else None
            if name is None:
                words = "what this buffer is called cannot be told"
                raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)
            yield name


def _changes(code: Code, node: cst.Attribute) -> bool:
    """Whether an attribute is set, or changed in place, where it stands, but for a constructor."""
    function = code.function_of(node)
    if function is not None and function.name.value == "__init__":
        return False
    return is_changed_at(code, node)


def _require_same(code: Code, call: cst.Call) -> None:
    """Raises Cannot for a call that does more than to forget what it computed."""
    place = str(code.path), code.line(call)
    if any(arg.star == "**" for arg in call.args) or not call.args or call.args[0].star:
        raise Cannot("what * or ** gives to checkpoint cannot be told", *place)
    if call.args[0].keyword is not None:
        raise Cannot("the function is given by its name", *place)
    if "#" in code.source(call):
        raise Cannot("a comment stands within the call", *place)
    given = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
    if "context_fn" in given:
        raise Cannot("its context_fn says what is kept", *place)
    for name, same in _SETTINGS.items():
        if name in given and same is not None and code.source(given[name]) != same:
            raise Cannot(_WHY.get(name, f"{name}={code.source(given[name])}"), *place, write=BY_HAND)
    if "use_reentrant" not in given:
        raise Cannot(_WHY["use_reentrant"], *place, write=BY_HAND)
    function: cst.CSTNode = call.args[0].value
    if isinstance(function, cst.Name):
        bound = [one.node for one in code.assignments(function, function.value)]
        function = next((one for one in bound if isinstance(one, cst.FunctionDef)), function)
    if not isinstance(function, cst.FunctionDef | cst.Lambda):
        return
    _require_bound_once(code, call, function)


def _require_bound_once(code: Code, call: cst.Call, function: cst.FunctionDef | cst.Lambda) -> None:
    """Raises Cannot where a variable that a function closes over is another by the time of backward."""
    around = code.function_of(call)
    for name in code.nodes(cst.Name, function):
        for one in code.assignments(name, name.value):
            node = one.node
            if code.function_of(node) is not around or around is None or code.holds(function, node):
                continue
            loops = [loop for kind in (cst.For, cst.While) for loop in _around(code, call, kind)]
            again = any(code.holds(loop, node) for loop in loops)
            if not isinstance(node, cst.Param) and (again or code.begin(node) > code.begin(call)):
                words = f"{name.value} is bound anew before backward: it computes with another there"
                raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)


def _around(code: Code, node: cst.CSTNode, kind: type[Node]) -> Iterator[Node]:
    found = code.above(node, kind)
    while found is not None:
        yield found
        found = code.above(found, kind)


_WHY: Final = {
    "use_reentrant": "without use_reentrant=False a part whose inputs need no gradient is not trained: it "
    "would be",
    "preserve_rng_state": "random numbers are drawn again in backward, which would not be drawn",
    "debug": "what it tells of is asked for",
}


# -- what is written ---------------------------------------------------------------------------------------


def _plain(code: Code, call: cst.Call) -> str:
    """The call without it."""
    function = call.args[0].value
    called = enclosed(code, function)
    if not function.lpar and not isinstance(function, cst.Name | cst.Attribute | cst.Subscript | cst.Call):
        called = f"({called})"
    kept = [arg for arg in call.args[1:] if arg.keyword is None or arg.keyword.value not in _SETTINGS]
    if code.qualified(call.func) == _MANY:
        kept = _of_a_sequence(code, call, kept)
    return f"{called}({', '.join(_argument(code, arg) for arg in kept)})"


def _of_a_sequence(code: Code, call: cst.Call, kept: list[cst.Arg]) -> list[cst.Arg]:
    """What a ``Sequential`` is called with. Raises Cannot where it may be a list of functions."""
    given = [arg for arg in kept if arg.keyword is None or arg.keyword.value != "segments"]
    inputs = given[1:] if len(given) == len(kept) and kept[0].keyword is None else given
    function = call.args[0].value
    values: list[cst.BaseExpression | None] = []
    owner = code.above(call, cst.ClassDef)
    if isinstance(function, cst.Attribute) and is_self(function.value) and owner is not None:
        values = list(bound_to_self(code, owner, function.attr.value))
    elif isinstance(function, cst.Name):
        values = [value_of(code, one.node) for one in code.assignments(function, function.value)]
    if not values or any(
        not isinstance(one, cst.Call) or not code.qualified(one.func).endswith(".Sequential")
        for one in values
    ):
        words = f"{code.source(function)} may be a list of functions, which cannot be called"
        raise Cannot(words, str(code.path), code.line(call))
    if len(inputs) != 1 or inputs[0].star:
        raise Cannot("what the sequence is given cannot be told", str(code.path), code.line(call))
    return [inputs[0].with_changes(keyword=None)] if inputs[0].keyword is not None else inputs


def _argument(code: Code, arg: cst.Arg) -> str:
    name = f"{arg.keyword.value}=" if arg.keyword is not None else ""
    return f"{arg.star}{name}{enclosed(code, arg.value)}"


def _drop_imports(plan: Plan, code: Code, codes: list[Code], gone: set[cst.BaseExpression]) -> None:
    """Leave out the names that nothing reads any more, each where it has a line of its own."""
    for statement in code.nodes(cst.SimpleStatementLine):
        small = statement.body[0]
        if len(statement.body) != 1 or not isinstance(small, cst.ImportFrom):
            continue
        if isinstance(small.names, cst.ImportStar) or not isinstance(code.parents[statement], cst.Module):
            continue
        unused = [one for one in small.names if _unused(code, one, gone)]
        names = {last_name(one.asname.name if one.asname is not None else one.name) for one in unused}
        if not unused or any(_imports(other, name) for other in codes for name in names if other is not code):
            continue
        if len(unused) == len(small.names):
            start, end = code.span(statement)
            start, end = code.line_start(start), code.line_end(end - 1) + len(code.text.newline)
            plan.remove(code, start, end, f"{code.source(statement).strip()} left out")
            continue
        for at, one in enumerate(small.names):
            if one in unused and at:
                plan.remove(code, code.span(small.names[at - 1])[1], code.span(one)[1], "import left out")
            elif one in unused:
                plan.remove(code, code.span(one)[0], code.span(small.names[1])[0], "import left out")


def _unused(code: Code, alias: cst.ImportAlias, gone: set[cst.BaseExpression]) -> bool:
    name = alias.asname.name if alias.asname is not None else alias.name
    if not isinstance(name, cst.Name):
        return False
    bound = code.global_names(name.value)
    reads = {access.node for one in bound for access in one.references}
    return len(bound) == 1 and bool(reads) and all(
        any(code.holds(one, read) for one in gone) for read in reads
    )  # fmt: skip


def _imports(code: Code, name: str) -> bool:
    """Whether a file imports that name from one of the user's."""
    return any(
        last_name(one.name) == name and not code.source(statement).startswith("from torch")
        for statement in code.nodes(cst.ImportFrom)
        if not isinstance(statement.names, cst.ImportStar)
        for one in statement.names
    )
