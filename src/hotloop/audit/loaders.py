"""DataLoader calls: their arguments, through ``**kwargs`` that are dict literals, and what they feed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from hotloop.audit.module import UNKNOWN, Module, chain
from hotloop.audit.regions import Region
from hotloop.written import LOADER_POSITIONS

DATALOADER: Final = "torch.utils.data.DataLoader"
_DEVICE: Final = re.compile(r"^((self|args|cfg|config|opt)\.)?(\w*_)?device(_id)?$")
_TRAIN: Final = re.compile(r"(^|[^a-z])(train|trn|training)", re.I)
EVALUATION: Final = re.compile(r"(^|[^a-z])(val|valid|test|eval|dev|infer|pred|query|gallery|calib)", re.I)


@dataclass(frozen=True, kw_only=True)
class Loader:
    """One DataLoader call.

    ``given`` holds the arguments that are surely passed; ``complete`` says whether there can be others.
    """

    module: Module
    call: ast.Call
    given: dict[str, ast.expr]
    complete: bool
    role: Literal["train", "evaluation", ""]

    def has(self, name: str) -> bool | None:
        """Whether an argument is passed; None where that cannot be seen."""
        return True if name in self.given else (False if self.complete else None)

    def constant(self, name: str, default: Any) -> Any:
        """The literal value in effect, ``default`` where it is surely not passed, else ``UNKNOWN``."""
        if name in self.given:
            return self.module.constant(self.given[name])
        return default if self.complete else UNKNOWN

    @property
    def target(self) -> str:
        """The name that the loader is assigned to, as written; empty where it is not."""
        parent = self.module.parents.get(self.call)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return chain(parent.targets[0])
        return chain(parent.target) if isinstance(parent, ast.AnnAssign) else ""


def find(module: Module) -> list[Loader]:
    """Every DataLoader call of a module."""
    return [_loader(module, call) for call in module.calls_to(DATALOADER)]


def _loader(module: Module, call: ast.Call) -> Loader:
    given: dict[str, ast.expr] = {}
    complete = True
    for name, value in zip(LOADER_POSITIONS, call.args, strict=False):
        if isinstance(value, ast.Starred):
            complete = False
            break
        given[name] = value
    for keyword in call.keywords:
        if keyword.arg is not None:
            given[keyword.arg] = keyword.value
            continue
        spread = _spread(module, keyword.value)
        if spread is None:
            complete = False
        else:
            given.update(spread)
    loader = Loader(module=module, call=call, given=given, complete=complete, role="")
    return Loader(module=module, call=call, given=given, complete=complete, role=_role(loader))


def _spread(module: Module, node: ast.expr) -> dict[str, ast.expr] | None:
    """The entries of ``**node``, where it is a dict literal that nothing changes afterwards."""
    value = module.value(node)
    if isinstance(node, ast.Name) and _is_changed(module, node.id):
        return None
    if isinstance(value, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        if all(isinstance(key, str) for key in keys):
            return {str(key): item for key, item in zip(keys, value.values, strict=True)}
    if not isinstance(value, ast.Call) or module.dotted(value.func) != "dict" or value.args:
        return None
    return {str(k.arg): k.value for k in value.keywords} if all(k.arg for k in value.keywords) else None


def _is_changed(module: Module, name: str) -> bool:
    changes = [
        *module.calls.get("update", ()),
        *module.calls.get("setdefault", ()),
        *module.calls.get("pop", ()),
    ]
    if any(chain(call.func) in (f"{name}.{a}" for a in ("update", "setdefault", "pop")) for call in changes):
        return True
    return any(
        isinstance(target, ast.Subscript) and chain(target) == name
        for assign in module.assigns
        for target in assign.targets
    )


def _role(loader: Loader) -> Literal["train", "evaluation", ""]:
    guards = (a for a in loader.module.ancestors(loader.call) if isinstance(a, ast.If))
    if "backward" not in loader.module.calls and any("__name__" in ast.unparse(a.test) for a in guards):
        return ""  # a file that shows its dataset
    for words in _names(loader):
        if EVALUATION.search(words):
            return "" if _TRAIN.search(words) else "evaluation"
        if _TRAIN.search(words):
            return "train"
    return "train" if loader.constant("shuffle", False) is True else ""


def _names(loader: Loader) -> Iterator[str]:
    """What tells a loader's role, the most telling first."""
    module, call = loader.module, loader.call
    yield loader.target
    parent = module.parents.get(call)
    if isinstance(parent, ast.Dict):
        key = parent.keys[parent.values.index(call)]
        yield str(key.value) if isinstance(key, ast.Constant) else ""
    dataset = loader.given.get("dataset")
    yield chain(dataset) if dataset is not None else ""
    function = module.function_of(call)
    yield function.name if function is not None else ""


def region_loader(loaders: list[Loader], region: Region) -> Loader | None:
    """The loader that a training loop iterates, by its name in the file; none where a library wraps
    loaders.
    """
    if not isinstance(region.root, ast.For):
        return None
    names = {chain(n) for n in ast.walk(region.root.iter) if isinstance(n, ast.Name | ast.Attribute)}
    found = [loader for loader in loaders if loader.module is region.module and loader.target in names]
    wrapped = [
        call
        for name in ("prepare", "prepare_data_loader", "setup_dataloaders")
        for call in region.module.calls.get(name, ())
    ]
    return found[0] if len(found) == 1 and not wrapped else None


def made_class(loader: Loader) -> str:
    """The last name of what makes the loader's dataset, where that stands in the source."""
    node = loader.given.get("dataset")
    made = loader.module.value(node) if node is not None else None
    return chain(made.func).rpartition(".")[2] if isinstance(made, ast.Call) else ""


def pins(loader: Loader) -> bool | None:
    """Whether batches are pinned; None where that cannot be seen."""
    value = loader.constant("pin_memory", False)
    return value if isinstance(value, bool) else None


def batch_moves(region: Region) -> Iterator[ast.Call]:
    """Copies to a device, at every step, of the names that the loop over the loader binds."""
    if not isinstance(region.root, ast.For):
        return
    batch = {n.id for n in ast.walk(region.root.target) if isinstance(n, ast.Name)}
    for call in region.calls_named("to", "cuda"):
        if not isinstance(call.func, ast.Attribute) or not region.every_step(call):
            continue
        target = ast.unparse(call.args[0]) if call.args else ""
        if call.func.attr == "to" and not ("cuda" in target or _DEVICE.match(target)):
            continue
        if isinstance(call.func.value, ast.Name | ast.Subscript) and chain(call.func.value) in batch:
            yield call
