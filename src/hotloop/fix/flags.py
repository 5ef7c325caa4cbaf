"""Switches of torch: changed in the line that set them in the run, else set at the start of the script."""

from __future__ import annotations

import ast
import sys
from typing import Any, Final

from hotloop.feed.memory import heap_chosen
from hotloop.fix import blocks, reading
from hotloop.fix.calls import called, calls_in, sites_of
from hotloop.fix.follow import Entry, Follower, Literal
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Cannot
from hotloop.fix.waiting import loop_of
from hotloop.measure.places import Frame
from hotloop.measure.settings import same
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.flow import loops_around
from hotloop.source.nodes import last_name

_NAME: Final = "PYTORCH_CUDA_ALLOC_CONF"
_SETTING: Final = "expandable_segments:True"


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
    found = calls_in(plan, "set_num_threads")
    if len(found) > 1:
        raise Cannot("set_num_threads is called in several places of yours", str(found[0][0].path))
    if found and found[0][1].args:
        code, call = found[0]
        try:
            target = Follower(plan.scene, ()).expression(code, call.args[0], None)
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
    plan.statement(code, "import gc")
    blocks.before(plan, code, before, ["gc.collect()", "gc.freeze()"])


def keep_freed_memory(plan: Plan, value: Any) -> None:
    """``mallopt`` in front of the training loop."""
    why = heap_chosen(plan.scene.process.first("process").get("env") or {})
    if why:
        raise Cannot(why)
    code, before = _training_loop(plan, "mallopt")
    plan.statement(code, "import ctypes")
    plan.statement(code, "import sys")
    blocks.before(plan, code, before, list(_MALLOPT))


#: Of glibc 2.35 on one piece may be of 1 GiB, before that of 32 MiB.
_MALLOPT: Final = (
    'if sys.platform == "linux":  # glibc keeps what a step frees: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD',
    "    ctypes.CDLL(None).mallopt(-3, 1 << 30) or ctypes.CDLL(None).mallopt(-3, 32 << 20)",
    "    ctypes.CDLL(None).mallopt(-1, (1 << 31) - 1)",
)
#: Functions that set flags of other names.
_SETTERS: Final = ("use_deterministic_algorithms", "set_num_threads")
#: Frozen again, what was garbage by then is never freed.
_ONCE: Final = "gc.collect(); gc.freeze() once, behind what makes the data and the model"


def _training_loop(plan: Plan, call: str) -> tuple[Code, ast.AST]:
    """The outermost loop on the run's way to the loop over steps, in front of which is run once. Raises
    Cannot; Already where the file of the loop over steps has the call.
    """
    code, node = loop_of(plan)
    if call in code.text.text:
        raise Already(f"{call} stands in this file already", str(code.path))
    found: dict[tuple[Frame, ...], tuple[Code, ast.AST]] = {}
    for site in sites_of(plan, row.BACKWARD):
        for at, frame in enumerate(site.frames):
            outer = plan.scene.code(frame.file)
            ran = called(outer, frame)
            loops = loops_around(outer, ran) if ran is not None else []
            if loops:
                found.setdefault(site.frames[:at], (outer, loops[-1]))
                break
    if len(found) > 1:
        raise Cannot("the loop is reached in several ways", str(code.path), node.lineno, write=_ONCE)
    return next(iter(found.values()), (code, ([node, *loops_around(code, node)])[-1]))


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
        new = reading.expression(plan.scene, target.code, target.node, configured)
    plan.put(target, flag, value, new)
    if isinstance(target, Entry):
        plan.remark(f"{target.note.get('key')} may be read elsewhere too")
    return True


def _value_set(code: Code, line: int, flag: str) -> ast.expr | None:
    """The value in ``torch.backends.cudnn.benchmark = VALUE`` or ``torch.set_num_threads(VALUE)``."""
    last = flag.removeprefix("cudnn_").removeprefix("matmul_")
    assigned = [one for one in code.nodes(ast.Assign) if one.lineno == line]
    found = [one.value for one in assigned if any(last_name(target) == last for target in one.targets)]
    calls = [call for call in code.nodes(ast.Call) if call.lineno == line and call.args]
    found += [call.args[0] for call in calls if last_name(call.func).endswith((last, *_SETTERS))]
    return found[0] if len(found) == 1 else None


def _started(plan: Plan, statement: str) -> None:
    main = plan.scene.main
    if main is None:
        raise Cannot("the main script is not known")
    code = plan.scene.code(main)
    plan.statement(code, statement.replace("{torch}", torch_name(plan, code)))


def torch_name(plan: Plan, code: Code) -> str:
    """What ``torch`` is called in a file; imported where it is not."""
    for name, bound in code.scopes.module.bindings.items():
        if [one.imported for one in bound if one.imported == "torch"]:
            return name
    if code.global_names("torch"):
        raise Cannot("torch is the name of something else here", str(code.path), 1)
    plan.statement(code, "import torch")
    return "torch"


# -- the allocator -------------------------------------------------------------------------------------------


def expandable_segments(plan: Plan, value: Any) -> None:
    """``os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")``.

    Only where nothing sets it yet: neither the code nor the environment of the run.
    """
    if plan.scene.device != "cuda":
        raise Cannot("the run has seen no CUDA device: nothing else has segments")
    known = plan.scene.process.first("process").get("env") or {}
    environ = {name: str(known[name]) for name in ("PYTORCH_ALLOC_CONF", _NAME) if known.get(name)}
    if any("cudaMallocAsync" in words for words in environ.values()):
        raise Cannot("cudaMallocAsync is chosen, which has no segments")
    if environ and all(_SETTING in words for words in environ.values()):
        raise Already("segments grow already")
    for code in plan.scene.codes("ALLOC_CONF"):
        if _SETTING in code.text.text:
            raise Already("segments grow already", str(code.path), 1)
        raise Cannot("the file sets the allocator already", str(code.path), 1, write=f"{_SETTING} among it")
    if environ:
        raise Cannot(f"{' and '.join(environ)} is set in the environment", write=f"{_SETTING} among it")
    main = plan.scene.main
    if main is None or "-m" in (plan.scene.process.first("process").get("orig_argv") or ()):
        words = "what loads torch first cannot be told"
        raise Cannot(words, str(main or ""), write=f"{_NAME}={_SETTING} in the environment")
    code = plan.scene.code(main)
    first = next((one for one in code.module.body if not _is_before(plan, code.path, one)), None)
    if first is None:
        raise Cannot("the script imports nothing", str(main))
    has_os = any(one.imported == "os" and one.node.lineno < first.lineno for one in code.global_names("os"))  # type: ignore[attr-defined]
    newline, start = code.text.newline, code.line_start(code.span(first)[0])
    lines = [*([] if has_os else ["import os", ""]), f'os.environ.setdefault("{_NAME}", "{_SETTING}")', ""]
    above = code.text.text[:start]
    gap = newline if above.strip() and not above.endswith(newline * 2) and has_os else ""
    plan.insert(code, start, gap + "".join(line + newline for line in lines), lines[-2])


def _is_before(plan: Plan, path: Any, statement: ast.stmt) -> bool:
    """Whether a statement loads no torch: a docstring, an import of the standard library's."""
    if isinstance(statement, ast.Import):
        names = [one.name.partition(".")[0] for one in statement.names]
    elif isinstance(statement, ast.ImportFrom):
        names = [(statement.module or "").partition(".")[0]] if not statement.level else [""]
    else:
        return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return all(name in sys.stdlib_module_names and plan.scene.module(name, path) is None for name in names)
