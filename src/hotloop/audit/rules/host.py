"""What the host does at every step, and makes the device wait for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from hotloop.audit.datasets import is_lazy
from hotloop.audit.module import Module
from hotloop.audit.patterns import Hit, Rule, at, every_step, gives, in_training
from hotloop.audit.program import Program, uses_cuda
from hotloop.audit.regions import Region
from hotloop.source.nodes import argument, chain, last_name, targets_of
from hotloop.source.values import constant, made_by, values

_METHODS: Final = frozenset([
    "abs", "all", "any", "clamp", "detach", "exp", "isfinite", "isinf", "isnan", "log", "max", "mean",
    "min", "norm", "sqrt", "std", "sum", "var",
])  # fmt: skip
_FUNCTIONS: Final = _METHODS | {
    "cat", "relu", "sigmoid", "stack", "tanh", "where", "zeros", "ones", "zeros_like", "ones_like", "softmax"
}  # fmt: skip
#: They refuse anything but a tensor.
_TAKE_TENSORS: Final = ("exp", "isfinite", "isinf", "isnan", "log", "relu", "sigmoid", "sqrt", "tanh")


def is_tensor(module: Module, node: ast.AST | None, known: frozenset[str], depth: int = 8) -> bool:
    """Whether an expression is a tensor for sure; ``known`` are names that are (the loss)."""
    if node is None or not depth:
        return False

    def tensor(one: ast.AST | None) -> bool:
        return is_tensor(module, one, known, depth - 1)

    if isinstance(node, ast.Name):
        bound = values(module, node)
        if node.id in known or (bound and all(map(tensor, bound))):
            return True
        return len(bound) == 1 and _is_taken(module, node)
    if isinstance(node, ast.Compare):
        ordered = all(isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE) for op in node.ops)
        return ordered and any(map(tensor, (node.left, *node.comparators)))
    if isinstance(node, ast.BinOp):
        return tensor(node.left) or tensor(node.right)
    if isinstance(node, ast.UnaryOp):
        return tensor(node.operand)
    if isinstance(node, ast.BoolOp):
        return tensor(node.values[0])
    if not isinstance(node, ast.Call):
        return False
    package, _, name = module.qualified(node.func).rpartition(".")
    if package == "torch.nn.functional" or (package == "torch" and name in _FUNCTIONS):
        return True
    if isinstance(node.func, ast.Name):
        own = module.own(node.func.id)
        returned = [one.value for one in module.nodes(ast.Return, own)] if own is not None else []
        return bool(returned) and all(map(tensor, returned))
    return isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and tensor(node.func.value)


def _is_taken(module: Module, name: ast.Name) -> bool:
    """Whether the function that binds the name hands it to a torch function that takes only tensors."""
    scope = module.function_of(name)
    for call in module.nodes(ast.Call, scope) if scope is not None else ():
        if len(call.args) == 1 and module.function_of(call) is scope:
            given = call.args[0].operand if isinstance(call.args[0], ast.UnaryOp) else call.args[0]
            package, _, function = module.qualified(call.func).rpartition(".")
            refuses = package == "torch" and function in _TAKE_TENSORS
            if refuses and isinstance(given, ast.Name) and given.id == name.id:
                return True
    return False


_ANOMALY: Final = (
    "torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
)  # fmt: skip
_SWITCHES: Final[dict[tuple[object, object], str]] = {
    ("CUDA_LAUNCH_BLOCKING", "1"): "the host waits for every kernel",
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"): "every tensor asks the driver for its memory",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "every collective is checked across ranks",
}
#: What makes a viewer -> its methods that send or serve.
_VIEWERS: Final = {
    "visdom.Visdom": ("line", "lines", "image", "images", "heatmap", "scatter", "plot", "text", "histogram"),
    "viser.ViserServer": ("flush",),
    "nerfview.Viewer": ("update", "rerender"),
    "gsplat_viewer.GsplatViewer": ("update", "rerender"),
}
_HOST_MADE: Final = tuple(
    f"torch.{name}" for name in ("rand", "randint", "randn", "randperm", "tensor", "as_tensor")
)
_HOST_PACKAGES: Final = ("numpy.", "math.", "random.")
_TO_HOST: Final = ("cpu", "numpy", "tolist", "item")


def _anomaly_detection(program: Program) -> Iterator[Hit]:
    """Anomaly detection is turned on unconditionally in a file that trains."""
    for module in program.training:
        for call in module.calls_to(*_ANOMALY):
            on = not call.args or gives(module, call, "mode", True, 0)
            if on and not call.keywords and in_training(program, module, call):
                yield at(module, call, "high")


def _debug_environment(program: Program) -> Iterator[Hit]:
    """os.environ gets a debugging switch unconditionally."""
    for module in program.modules:
        for assign in module.nodes(ast.Assign):
            target = assign.targets[0]
            if not isinstance(target, ast.Subscript) or module.qualified(target.value) != "os.environ":
                continue
            key, value = constant(module, target.slice), constant(module, assign.value)
            effect = _SWITCHES.get((key, value))
            if effect and in_training(program, module, assign):
                yield at(module, assign, "high", f"{key}={value} is set in every run: {effect}.")


def _serves(program: Program, region: Region, call: ast.Call) -> bool:
    """A method of a viewer that sends or serves."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    return func.attr in _VIEWERS.get(made_by(region.module, func.value), ()) and bool(chain(func))


# Waiting for the device


def _sync_in_step(program: Program) -> Iterator[Hit]:
    """item(), cpu(), float(loss), synchronize() or a branch on a tensor, at every step on CUDA."""
    regions = [region for region in program.regions if uses_cuda(region.module)]
    for region in regions:
        yield from _calls(region)
    branches = {}
    for region in regions:
        known = frozenset(region.losses)
        found = [(region.module, _branches(region.module, region.root, region.every_step, known))]
        for module, function in program.called(region):
            runs = lambda node, module=module, function=function: not is_lazy(module, node, function)  # noqa: E731
            found.append((module, _branches(module, function, runs)))
        branches.update({(module.name, nodes[0].lineno): (module, nodes) for module, nodes in found if nodes})
    for module, nodes in branches.values():
        yield at(
            module,
            nodes[0],
            "medium",
            "Python branches on a tensor at every step: the host waits until the device has computed it, and "
            "torch.compile breaks its graph here.",
            "Compute both sides and choose with torch.where, or use a form that is zero where it does not "
            "apply (relu).",
            also=nodes[1:],
        )


def _branches(
    module: Module, root: ast.AST, runs: Callable[[ast.AST], bool], known: frozenset[str] = frozenset()
) -> list[ast.If]:
    """Conditions on tensors in a step, or in a function that it calls, that are always asked."""
    return [node for node in module.nodes(ast.If, root) if runs(node) and is_tensor(module, node.test, known)]


def _calls(region: Region) -> Iterator[Hit]:
    """Calls that wait, in a region."""
    found = []
    for call in region.calls:
        loops = (above for above in region.module.ancestors(call) if isinstance(above, ast.For))
        words = _waits(region, call) if region.every_step(call) else ""
        if words and not any(map(over_parameters, loops)):
            found.append((call, words))
    if found:
        (call, words), *alike = found
        count = f" ({len(found)} such calls)" if alike else ""
        yield at(
            region.module,
            call,
            "medium",
            f"{words} runs at every step and makes the host wait for the device{count}: the next step cannot "
            "be queued while this one runs.",
            "Keep the value on the device (loss.detach()), sum it there, and read it every N steps.",
            also=[other for other, _ in alike],
        )


def _waits(region: Region, call: ast.Call) -> str:
    """What waits, as it is shown; "" for a call that does not."""
    func, module = call.func, region.module
    if isinstance(func, ast.Attribute) and func.attr in ("item", "cpu") and not call.args:
        owner = chain(func.value) or "(…)"
        if module.dotted(func.value) or _on_host(region, func.value):
            return ""
        simple = owner == "(…)" or isinstance(func.value, ast.Name | ast.Attribute)
        rest = "[...]" if isinstance(func.value, ast.Subscript) else "(...)"
        return f"{owner}{'' if simple else rest}.{func.attr}()"
    if module.qualified(func) == "torch.cuda.synchronize":
        return "torch.cuda.synchronize()"
    if module.builtin(func) == "float" and len(call.args) == 1 and isinstance(call.args[0], ast.Name):
        return f"float({call.args[0].id})" if call.args[0].id in region.losses else ""
    return ""


def _on_host(region: Region, node: ast.expr) -> bool:
    """Whether a value comes from a copy on the host (which waited itself), NumPy, or the loader's own
    batch.
    """
    module = region.module
    root: ast.AST = node
    while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(root, ast.Call):
            made = module.dotted(root.func) in _HOST_MADE and argument(root, "device") is None
            if made or getattr(root.func, "attr", "") in _TO_HOST:
                return True
        root = root.func if isinstance(root, ast.Call) else root.value
    if not isinstance(root, ast.Name):
        return False
    target = getattr(region.root, "target", None)
    batch = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if target is not None else set()
    bound = [one for one in values(module, root) if one is not None]
    if root.id in batch and not bound:
        return True
    return any(
        getattr(part, "attr", "") in _TO_HOST or module.qualified(part).startswith(_HOST_PACKAGES)
        for one in bound
        for part in module.nodes((ast.Attribute, ast.Name), one)
    )


# Python that visits every parameter at every step


_IN_PLACE: Final = ("mul_", "add_", "lerp_", "copy_", "clamp_", "div_", "sub_", "addcmul_", "addcdiv_")
#: Functions that training itself is made of: visiting parameters there is not an extra.
_ONCE: Final = ("init", "build", "freeze", "load", "group", "save", "state", "reset")


def _loop_over_parameters(program: Program) -> Iterator[Hit]:
    """Loops over ``model.parameters()``, at every step, that read values or update in place.

    The step itself is looked at, and the functions it calls.
    """
    found: dict[tuple[str, int], Hit] = {}
    for region in program.regions:
        if not uses_cuda(region.module):
            continue
        module = region.module
        places = [(module, n) for n in module.nodes(ast.For, region.root) if region.every_step(n)]
        for where, function in program.called(region):
            if not any(word in function.name for word in _ONCE):
                loops = where.nodes(ast.For, function)
                places += [(where, n) for n in loops if not is_lazy(where, n, function)]
        for where, loop in places:
            hit = _hit(where, loop) if over_parameters(loop) else None
            if hit is not None:
                found[where.name, loop.lineno] = hit
    yield from found.values()


def over_parameters(loop: ast.For) -> bool:
    """``for p in model.parameters()``, also in zip or enumerate; ``for k, v in m.state_dict().items()``."""
    calls = [node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)]
    return any(
        (isinstance(call.func, ast.Attribute) and call.func.attr in ("parameters", "named_parameters"))
        or chain(call.func).endswith((".state_dict.items", ".state_dict.values"))
        for call in calls
    )


def _hit(module: Module, loop: ast.For) -> Hit | None:
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    inside = [node for statement in loop.body for node in module.under(statement)]
    for node in inside:  # norm = p.grad.norm()
        if isinstance(node, ast.Assign) and names & {n.id for n in module.nodes(ast.Name, node.value)}:
            names |= {last_name(target) for target in targets_of(node)}
    read = next((node for node in inside if _reads(module, node, names)), None)
    if read is not None:
        return at(
            module,
            loop,
            "medium",
            "Every parameter is visited at every step, and one value of each is read on the host: it waits "
            "for the device once for each parameter.",
            "Ask once: torch.nn.utils.get_total_norm or clip_grad_norm_ gives one norm for all (not finite "
            "if any gradient is not); torch._foreach_norm(list) gives all norms in one launch.",
            also=[read],
        )
    updated = next((node for node in inside if _updates(node, names)), None)
    gates = (above for above in module.ancestors(loop) if isinstance(above, ast.If))
    if updated is None or any("%" in ast.unparse(gate.test) for gate in gates):
        return None
    return at(
        module,
        loop,
        "low",
        "Every parameter is updated by itself at every step: a kernel or two for each, launched one after "
        "the other.",
        "Use the list forms (torch._foreach_lerp_, _foreach_mul_, _foreach_add_, _foreach_clamp_max_): one "
        "launch for many tensors. For averages there is torch.optim.swa_utils.AveragedModel with "
        "get_ema_multi_avg_fn.",
        also=[updated],
    )


def _reads(module: Module, node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in _TO_HOST and chain(node.func).partition(".")[0] in names
    if isinstance(node, ast.If):
        mentions = any(one.id in names for one in module.nodes(ast.Name, node.test))
        return mentions and is_tensor(module, node.test, frozenset())
    return False


def _updates(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in _IN_PLACE and chain(node.func).partition(".")[0] in names
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in names


RULES: Final[dict[str, Rule]] = {
    "host/loop-over-parameters": _loop_over_parameters,
    "host/anomaly-detection": _anomaly_detection,
    "host/debug-environment": _debug_environment,
    "host/gc-pauses": every_step(
        "medium",
        "gc.collect",
        message="gc.collect() runs at every step: it visits every Python object of the process, 10 ms to "
        "500 ms with torch imported.",
    ),
    "host/sync-in-step": _sync_in_step,
    "host/viewer-in-loop": every_step(
        "medium",
        "matplotlib.pyplot.pause",
        "matplotlib.pyplot.draw",
        "matplotlib.pyplot.show",
        "cv2.waitKey",
        "cv2.imshow",
        "cv2.pollKey",
        when=_serves,
        most=10,
        message="{} runs {when}: drawing, sending and waiting for events happen on the training thread.",
    ),
}
