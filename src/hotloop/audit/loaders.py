"""DataLoader calls: their arguments, through ``**kwargs`` that are dict literals, and what they feed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from hotloop.audit.module import Module
from hotloop.audit.regions import Region
from hotloop.source.nodes import chain, text_of
from hotloop.source.values import UNKNOWN, constant, value
from hotloop.torch_facts import LOADER_POSITIONS

Role = Literal["train", "evaluation", ""]
_DEVICE: Final = re.compile(r"^((self|args|cfg|config|opt)\.)?(\w*_)?device(_id)?$")
_TRAIN: Final = re.compile(r"(^|[^a-z])(train|trn|training)", re.I)
EVALUATION: Final = re.compile(r"(^|[^a-z])(val|valid|test|eval|dev|infer|pred|query|gallery|calib)", re.I)
_CHANGES: Final = ("update", "setdefault", "pop")


@dataclass(frozen=True, kw_only=True)
class Loader:
    """One DataLoader call.

    ``given`` holds the arguments that are surely passed; ``complete`` says whether there can be others.
    """

    module: Module
    call: ast.Call
    given: dict[str, ast.expr]
    complete: bool
    role: Role = ""

    def has(self, name: str) -> bool | None:
        """Whether an argument is passed; None where that cannot be seen."""
        return True if name in self.given else (False if self.complete else None)

    def constant(self, name: str, default: Any) -> Any:
        """The literal value in effect, ``default`` where it is surely not passed, else ``UNKNOWN``."""
        if name in self.given:
            return constant(self.module, self.given[name])
        return default if self.complete else UNKNOWN

    def count(self, name: str, default: int) -> int:
        """A literal whole number above 0 that is in effect; 0 for anything else."""
        found = self.constant(name, default)
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0

    @property
    def target(self) -> str:
        """The name that the loader is assigned to, as written; empty where it is not."""
        parent = self.module.parents.get(self.call)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return chain(parent.targets[0])
        return chain(parent.target) if isinstance(parent, ast.AnnAssign) else ""

    @property
    def made(self) -> ast.Call | None:
        """The call that makes its dataset, where that stands in the source."""
        node = self.given.get("dataset")
        found = value(self.module, node) if node is not None else None
        return found if isinstance(found, ast.Call) else None

    @property
    def made_class(self) -> str:
        """The last name of what makes its dataset."""
        return chain(self.made.func).rpartition(".")[2] if self.made is not None else ""


def find(module: Module) -> Iterator[Loader]:
    """Every DataLoader call of a module."""
    for call in module.calls_to("torch.utils.data.DataLoader"):
        given: dict[str, ast.expr] = {}
        complete = True
        for name, argument in zip(LOADER_POSITIONS, call.args, strict=False):
            if isinstance(argument, ast.Starred):
                complete = False
                break
            given[name] = argument
        for keyword in call.keywords:
            named = {keyword.arg: keyword.value} if keyword.arg else _spread(module, keyword.value)
            given.update(named or {})
            complete = complete and named is not None
        plain = Loader(module=module, call=call, given=given, complete=complete)
        yield Loader(module=module, call=call, given=given, complete=complete, role=_role(plain))


def _spread(module: Module, node: ast.expr) -> dict[str, ast.expr] | None:
    """The entries of ``**node``, where it is a dict literal that nothing changes afterwards."""
    made = value(module, node)
    if isinstance(node, ast.Name) and _is_changed(module, node.id):
        return None
    if isinstance(made, ast.Dict):
        keys = [text_of(key) for key in made.keys]
        if all(keys):
            return {str(key): item for key, item in zip(keys, made.values, strict=True)}
    if not isinstance(made, ast.Call) or module.dotted(made.func) != "dict" or made.args:
        return None
    return {str(k.arg): k.value for k in made.keywords} if all(k.arg for k in made.keywords) else None


def _is_changed(module: Module, name: str) -> bool:
    changes = {f"{name}.{method}" for method in _CHANGES}
    if any(chain(call.func) in changes for method in _CHANGES for call in module.calls(method)):
        return True
    return any(
        isinstance(node.ctx, ast.Store) and chain(node) == name for node in module.nodes(ast.Subscript)
    )


def _role(loader: Loader) -> Role:
    guards = (above for above in loader.module.ancestors(loader.call) if isinstance(above, ast.If))
    if not loader.module.calls("backward") and any("__name__" in ast.unparse(a.test) for a in guards):
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
        yield text_of(parent.keys[parent.values.index(call)]) or ""
    yield chain(loader.given.get("dataset"))
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
    wrapping = ("prepare", "prepare_data_loader", "setup_dataloaders")
    wrapped = any(region.module.calls(name) for name in wrapping)
    return found[0] if len(found) == 1 and not wrapped else None


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
