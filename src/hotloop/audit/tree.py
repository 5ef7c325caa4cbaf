"""Everything an audit looks at: modules, training regions, loaders, datasets, options, configs, machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from hotloop.audit import datasets, loaders, regions
from hotloop.audit.configs import ConfigFile
from hotloop.audit.module import Function, Module, chain
from hotloop.audit.options import Option, options_of
from hotloop.audit.regions import Region, around

#: Files without any of these words train nothing with torch.
RELEVANT: Final = re.compile(r"\b(torch|lightning|accelerate|transformers)\b")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that will train: usable cores, and GPUs (0: none, or not known)."""

    cores: float
    gpus: int = 0


@dataclass(frozen=True)
class Tree:
    """All that one audit was given. ``texts`` has every parsed file's text, modules only the relevant
    ones.
    """

    modules: list[Module]
    texts: list[str] = field(default_factory=list)
    configs: list[ConfigFile] = field(default_factory=list)
    machine: Machine | None = None

    @cached_property
    def regions(self) -> list[regions.Region]:
        """Every training loop and every function that is one step of it."""
        called = {name for module in self.modules for name in regions.loop_calls(module)}
        return [region for module in self.modules for region in regions.find(module, called)]

    @cached_property
    def outer(self) -> list[tuple[Region, ast.Call]]:
        """Loops that run a step which is a function or a method elsewhere, each with its call of it."""
        found = []
        for step in self.regions:
            if isinstance(step.root, ast.For | ast.AsyncFor | ast.While):
                continue
            for module, call in self.callers(step.root):
                if self.method(module, call) == (step.module, step.root):
                    loop = around(module, call)
                    found += [(loop, call)] if loop is not None else []
        return found

    @cached_property
    def loaders(self) -> list[loaders.Loader]:
        """Every DataLoader call."""
        found = [loader for module in self.modules for loader in loaders.find(module)]
        feeding = [loaders.region_loader(found, region) for region in self.regions]
        return [replace(one, role="train") if one in feeding and not one.role else one for one in found]

    @cached_property
    def datasets(self) -> list[datasets.DatasetClass]:
        """Every Dataset class."""
        return datasets.find(self.modules)

    @cached_property
    def options(self) -> list[Option]:
        """Every argparse option of a known meaning, and every other one."""
        return [option for module in self.modules for option in options_of(module)]

    @cached_property
    def code(self) -> list[str]:
        """The texts without their comments, as far as a comment without quotation marks can be told."""
        return [re.sub(r"#[^\"'\n]*$", "", text, flags=re.M) for text in self.texts]

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of every source text."""
        return frozenset(word for text in self.texts for word in _WORD.findall(text))

    @cached_property
    def _functions(self) -> dict[str, list[tuple[Module, Function]]]:
        found: dict[str, list[tuple[Module, Function]]] = {}
        for module in self.modules:
            for function in module.functions:
                found.setdefault(function.name, []).append((module, function))
        return found

    @cached_property
    def _classes(self) -> dict[str, list[tuple[Module, ast.ClassDef]]]:
        found: dict[str, list[tuple[Module, ast.ClassDef]]] = {}
        for module in self.modules:
            for node in module.classes:
                found.setdefault(node.name.replace("_", "").lower(), []).append((module, node))
        return found

    @cached_property
    def trains_on_cuda(self) -> bool:
        """Whether any source speaks of CUDA devices."""
        return "cuda" in self.words

    def mentions(self, *words: str) -> bool:
        """Whether any of the words occurs anywhere in the tree."""
        return any(word in self.words for word in words)

    def target(self, module: Module, call: ast.Call) -> tuple[Module, Function] | None:
        """The function of the tree that a call runs: of the same file, imported, or a method of ``self``."""
        func = call.func
        if isinstance(func, ast.Name):
            own = [f for f in module.functions if f.name == func.id and f in module.tree.body]
            if own:
                return module, own[-1]
            return self._imported(module.imports.get(func.id, ""))
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Name) and func.value.id == "self":
                owner = module.class_of(call)
                method = module.method(owner, func.attr) if owner else None
                return (module, method) if method else None
            return self._imported(module.dotted(func))
        return None

    def method(self, module: Module, call: ast.Call) -> tuple[Module, Function] | None:
        """As ``target``; also the method of an object of a class of the tree, made where that can be seen, or
        called as the only class of its name is (``trainer`` for ``Trainer``).
        """
        func = call.func
        if not isinstance(func, ast.Attribute) or chain(func.value) == "self":
            return self.target(module, call)
        made = module.value(func.value)
        name = chain(made.func if isinstance(made, ast.Call) else func.value).rpartition(".")[2]
        owners = self._classes.get(name.replace("_", "").lower(), [])
        if len(owners) > 1:
            owners = [one for one in owners if one[0] is module or one[1].name in module.imports]
        method = owners[0][0].method(owners[0][1], func.attr) if len(owners) == 1 else None
        return (owners[0][0], method) if method else self.target(module, call)

    def targets(self, module: Module, call: ast.Call) -> list[tuple[Module, Function]]:
        """As ``target``; a local name that stands for either of two functions gives both."""
        value = module.value(call.func) if isinstance(call.func, ast.Name) else None
        names = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [call.func]
        calls = [
            ast.Call(func=name, args=[], keywords=[]) if name is not call.func else call for name in names
        ]
        return [target for one in calls if (target := self.target(module, one)) is not None]

    def _imported(self, dotted: str) -> tuple[Module, Function] | None:
        package, _, name = dotted.rpartition(".")
        found = [
            (module, function)
            for module, function in self._functions.get(name, ())
            if package
            and (module.dotted_name == package or module.dotted_name.endswith("." + package))
            and function in module.tree.body
        ]
        return found[0] if len(found) == 1 else None

    def callers(self, function: Function) -> Iterator[tuple[Module, ast.Call]]:
        """Calls anywhere in the tree of something of that name."""
        for module in self.modules:
            for call in module.calls.get(function.name, ()):
                yield module, call


def uses_cuda(module: Module) -> bool:
    """Whether a file moves things to a CUDA device, or to one it is told."""
    if any(chain(call.func) != "torch.cuda" for call in module.calls.get("cuda", ())):
        return True
    return "cuda" in module.source.text or ".to(self.device" in module.source.text


def trains_on_gpu(tree: Tree) -> regions.Region | None:
    """A training region in a file that uses CUDA, of a file named for training where there is one."""
    found = [region for region in tree.regions if uses_cuda(region.module)]
    named = (region for region in found if re.search(r"(^|/)(train|main)[^/]*$", region.module.name))
    return next(named, found[0] if found else None)
