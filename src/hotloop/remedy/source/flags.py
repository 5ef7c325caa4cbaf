"""Switches of torch: changed in the line that set them in the run, else set at the start of the script."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import libcst as cst

from hotloop.feed.memory import heap_chosen
from hotloop.measure.places import Frame
from hotloop.measure.settings import same
from hotloop.remedy.source import layout, reading
from hotloop.remedy.source.callers import Callers, only_caller
from hotloop.remedy.source.calls import calls_in
from hotloop.remedy.source.code import Code, Function, last_name
from hotloop.remedy.source.follow import Entry, Follower, Literal
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot


def cudnn_benchmark(plan: Plan, value: Any) -> None:
    """``torch.backends.cudnn.benchmark = True``."""
    if not _changed(plan, "cudnn_benchmark", True, "cudnn_benchmark"):
        _started(plan, "{torch}.backends.cudnn.benchmark = True")
    plan.expect_noted("torch", "cudnn_benchmark", True)


def tf32(plan: Plan, value: Any) -> None:
    """TensorFloat-32 for products and convolutions."""
    flags = plan.scene.process.first("torch")
    if flags.get("matmul_allow_tf32"):
        raise Already("products use TensorFloat-32 already")
    changed = _changed(plan, "matmul_allow_tf32", True, "tf32")
    changed = changed or _changed(plan, "float32_matmul_precision", "high", "tf32")
    if flags.get("cudnn_allow_tf32") is False and not _changed(plan, "cudnn_allow_tf32", True, "tf32"):
        _started(plan, "{torch}.backends.cudnn.allow_tf32 = True")
    if not changed:
        _started(plan, '{torch}.set_float32_matmul_precision("high")')
    plan.expect_noted("torch", "float32_matmul_precision", "high")


def not_deterministic(plan: Plan, value: Any) -> None:
    """What asked for deterministic algorithms asks no more."""
    found = [
        _changed(plan, flag, False, "deterministic")
        for flag in ("deterministic_algorithms", "cudnn_deterministic")
        if plan.scene.process.first("torch").get(flag)
    ]
    if not any(found):
        raise Cannot("no line of yours asks for deterministic algorithms")
    plan.expect_noted("torch", "deterministic_algorithms", False)


def threads(plan: Plan, value: Any) -> None:
    """``torch.set_num_threads(N)``."""
    if value is None:
        raise Cannot("how many threads is not known: give a value")
    found = [(code, call) for code, call in calls_in(plan) if last_name(call.func) == "set_num_threads"]
    if len(found) > 1:
        raise Cannot("set_num_threads is called in several places of yours", str(found[0][0].path))
    if found and found[0][1].args:
        code, call = found[0]
        try:
            target = Follower(plan.scene, ()).expression(code, call.args[0].value, None)
        except Cannot as cannot:
            write = f"set_num_threads({value}) there: it overrides OMP_NUM_THREADS"
            raise Cannot(cannot.why, cannot.file, cannot.line, write=write) from None
        plan.put(target, "threads", value)
    else:
        _started(plan, f"{{torch}}.set_num_threads({value})")
    plan.expect_noted("torch", "threads", value)


def gc_freeze(plan: Plan, value: Any) -> None:
    """``gc.freeze()`` in front of the training loop."""
    code, before = _training_loop(plan, "gc.freeze()")
    optimizers = {str(note.get("class")) for note in plan.scene.process.notes.get("optimizer", ())}
    if _makes(plan, code, before, optimizers):
        words = "what is trained is made in this loop, anew in each round"
        raise Cannot(words, str(code.path), code.line(before), write=_ONCE)
    plan.statement(code, "import gc")
    layout.before(plan, code, before, ["gc.collect()", "gc.freeze()"])


def keep_freed_memory(plan: Plan, value: Any) -> None:
    """``mallopt`` in front of the training loop."""
    why = heap_chosen(plan.scene.process.first("process").get("env") or {})
    if why:
        raise Cannot(why)
    code, before = _training_loop(plan, "mallopt")
    plan.statement(code, "import ctypes")
    plan.statement(code, "import sys")
    layout.before(plan, code, before, list(_MALLOPT))


#: Of glibc 2.35 on one piece may be of 1 GiB, before that of 32 MiB.
_MALLOPT: Final = (
    'if sys.platform == "linux":  # glibc keeps what a step frees: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD',
    "    ctypes.CDLL(None).mallopt(-3, 1 << 30) or ctypes.CDLL(None).mallopt(-3, 32 << 20)",
    "    ctypes.CDLL(None).mallopt(-1, (1 << 31) - 1)",
)
#: Frozen again, what was garbage by then is never freed.
_ONCE: Final = "gc.collect(); gc.freeze() once, behind what makes the data and the model"


def _training_loop(plan: Plan, call: str) -> tuple[Code, cst.CSTNode]:
    """The outermost loop around the loop over steps. Raises Already where its file has the call."""
    loop = plan.scene.loop
    if loop is None:
        raise Cannot("the training loop is not known")
    code = plan.scene.code(loop.file)
    if call in code.text.text:
        raise Already(f"{call} stands in this file already", loop.file)
    loops = [n for kind in (cst.For, cst.While) for n in code.nodes(kind) if code.line(n) == loop.line]
    if len(loops) != 1:
        raise Cannot("the training loop cannot be told", loop.file, loop.line)
    return _outermost(plan, code, loops[0])


def _outermost(plan: Plan, code: Code, node: cst.CSTNode) -> tuple[Code, cst.CSTNode]:
    """The outermost loop around the loop over steps, here or in a caller: in front of it is run once.

    Raises Cannot where the loop is reached from several places.
    """
    found = code, node
    seen: set[cst.CSTNode] = set()
    at: cst.CSTNode | None = node
    while at is not None:
        loop = _loop_around(code, at)
        found = (code, loop) if loop is not None else found
        function = code.function_of(at)
        if function is None or function in seen:
            break
        seen.add(function)
        above = _above(plan, code, function, at)
        if above is None:
            break
        code, at = above
    return found


def _loop_around(code: Code, node: cst.CSTNode) -> cst.CSTNode | None:
    """The outermost loop around a node in its function, itself included."""
    found = None
    around: cst.CSTNode | None = node
    while around is not None and not isinstance(around, cst.FunctionDef | cst.ClassDef):
        found = around if isinstance(around, cst.For | cst.While) else found
        around = code.parents.get(around)
    return found


def _above(plan: Plan, code: Code, function: Function, node: cst.CSTNode) -> tuple[Code, cst.CSTNode] | None:
    """From where the run came to a node of a function; by its text alone where the run does not tell.

    None where that is nowhere in the user's code. Raises Cannot for several places.
    """
    name, first, last = function.name.value, code.line(node), code.end(node)[0]
    came: set[Frame] = set()
    for stack in plan.scene.places.sites.values():
        through = Callers(plan.scene, stack.frames).through(function, code)
        inside = [at for at in through if first <= stack.frames[at].line <= last]
        came.update(stack.frames[at - 1] for at in inside if at)
    file, line = str(code.path), code.line(function)
    if len(came) > 1:
        places = ", ".join(sorted(f"{Path(one.file).name}:{one.line}" for one in came)[:3])
        raise Cannot(f"{name}() is called from several places ({places})", file, line, write=_ONCE)
    is_method = isinstance(code.parents.get(code.parents[function]), cst.ClassDef)
    written = only_caller(plan.scene, code, function) if not (came and is_method) else None
    if not came:
        return written
    frame = came.pop()
    outer = plan.scene.code(frame.file)
    call = outer.call_at(frame.line, frame.col, name=name)
    if call is None or last_name(call.func) != name:
        words = f"what calls {name}(), and how often, cannot be told"
        raise Cannot(words, frame.file, frame.line, write=_ONCE)
    return outer, call


def _makes(plan: Plan, code: Code, loop: cst.CSTNode, names: Collection[str]) -> bool:
    """Whether something of these classes is made in a loop, or in what is called there."""
    ahead, seen = [(code, loop)], {loop}
    while ahead:
        where, node = ahead.pop()
        for call in where.nodes(cst.Call, node):
            name = last_name(call.func)
            if name in names:
                return True
            for other in plan.scene.codes(name):
                meant: list[Function | cst.ClassDef] = [*other.nodes(cst.FunctionDef)]
                meant += other.nodes(cst.ClassDef)
                for one in meant:
                    around = other is code and other.holds(one, loop)
                    if one.name.value == name and one not in seen and not around:
                        seen.add(one)
                        ahead.append((other, one))
    return False


def _changed(plan: Plan, flag: str, value: Any, setting: str) -> bool:
    """Whether a line of the script set the flag, which is then changed there."""
    entry = (plan.scene.process.first("torch").get("set_by") or {}).get(flag)
    if not entry or len(entry) != 3:
        return False
    if same(entry[0], value):
        raise Already(f"{flag} is {entry[0]} already", str(entry[1]), int(entry[2]))
    code, line = plan.scene.code(entry[1]), int(entry[2])
    node = _value_set(code, line, flag)
    if node is None:
        raise Cannot(f"this line sets {flag}", str(entry[1]), line)
    follower = Follower(plan.scene, (), entry[0])
    configured = plan.scene.configured(setting)
    target = follower.expression(code, node, None)
    new = None
    if configured is not None and isinstance(target, Literal) and configured.get("value") == value:
        new = reading.expression(target.code, target.node, follower, configured)
    plan.put(target, flag, value, new)
    if isinstance(target, Entry):
        plan.remark(f"{target.note.get('key')} may be read elsewhere too")
    return True


def _value_set(code: Code, line: int, flag: str) -> cst.BaseExpression | None:
    """The value in ``torch.backends.cudnn.benchmark = VALUE`` or ``torch.set_num_threads(VALUE)``."""
    last = flag.removeprefix("cudnn_").removeprefix("matmul_")
    assigns = [
        node.value
        for node in code.nodes(cst.Assign)
        if code.line(node) == line and any(last_name(t.target) == last for t in node.targets)
    ]
    calls = [
        call.args[0].value
        for call in code.nodes(cst.Call)
        if code.line(call) == line and last_name(call.func).endswith(("_" + last, last)) and call.args
    ]
    calls += [
        call.args[0].value
        for call in code.nodes(cst.Call)
        if code.line(call) == line
        and last_name(call.func) in ("use_deterministic_algorithms", "set_num_threads")
        and call.args
        and not calls
    ]
    found = [*assigns, *calls]
    return found[0] if len(found) == 1 else None


def _started(plan: Plan, statement: str) -> None:
    main = plan.scene.main
    if main is None:
        raise Cannot("the main script is not known")
    code = plan.scene.code(main)
    plan.statement(code, statement.replace("{torch}", torch_name(plan, code)))


def torch_name(plan: Plan, code: Code) -> str:
    """What ``torch`` is called in a file; imported where it is not."""
    for node in code.nodes(cst.Import):
        if code.function_of(node) is None:
            for alias in node.names:
                name, asname = code.source(alias.name), alias.asname
                if name == "torch" and asname is not None:
                    return code.source(asname.name)
                if name.partition(".")[0] == "torch" and asname is None:
                    return "torch"
    if code.global_names("torch"):
        raise Cannot("torch is the name of something else here", str(code.path), 1)
    plan.statement(code, "import torch")
    return "torch"
