"""Switches of torch: changed in the line that set them in the run, else set at the start of the script."""

from __future__ import annotations

from typing import Any

import libcst as cst

from hotloop.measure.settings import same
from hotloop.remedy.source import layout, reading
from hotloop.remedy.source.callers import Callers
from hotloop.remedy.source.calls import calls_in
from hotloop.remedy.source.code import Code, last_name
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
        plan.put(Follower(plan.scene, ()).expression(code, call.args[0].value, None), "threads", value)
    else:
        _started(plan, f"{{torch}}.set_num_threads({value})")
    plan.expect_noted("torch", "threads", value)


def gc_freeze(plan: Plan, value: Any) -> None:
    """``gc.freeze()`` in front of the training loop."""
    loop = plan.scene.loop
    if loop is None:
        raise Cannot("the training loop is not known")
    code = plan.scene.code(loop.file)
    if "gc.freeze()" in code.text.text:
        raise Already("gc.freeze() stands in this file already", loop.file)
    loops = [n for kind in (cst.For, cst.While) for n in code.nodes(kind) if code.line(n) == loop.line]
    if len(loops) != 1:
        raise Cannot("the training loop cannot be told", loop.file, loop.line)
    code, before = _outermost(plan, code, loops[0])
    plan.statement(code, "import gc")
    layout.before(plan, code, before, ["gc.collect()", "gc.freeze()"])


def _outermost(plan: Plan, code: Code, node: cst.CSTNode) -> tuple[Code, cst.CSTNode]:
    """The loop over epochs around the loop over steps, in the caller where it stands there."""
    function = code.function_of(node)
    outer = code.above(node, cst.For)
    if outer is not None and code.function_of(outer) is function:
        return _outermost(plan, code, outer)
    caller = Callers(plan.scene, ()).caller(code, function, None) if function is not None else None
    if caller is None:
        return code, node
    above, call, _ = caller
    loop = above.above(call, cst.For)
    if loop is not None and above.function_of(loop) is above.function_of(call):
        return _outermost(plan, above, loop)
    return code, node


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
