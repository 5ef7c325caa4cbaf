"""Everything an audit looks at: modules, training regions, loaders, datasets, configs, machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from hotloop.audit import datasets, loaders, regions
from hotloop.audit.configs import ConfigFile
from hotloop.audit.datasets import DatasetClass
from hotloop.audit.loaders import Loader
from hotloop.audit.module import Module
from hotloop.audit.regions import Region
from hotloop.source.nodes import Function, is_self
from hotloop.source.values import method, value

#: Files without any of these words train nothing with torch.
RELEVANT: Final = re.compile(r"\b(torch|lightning|accelerate|transformers)\b")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
Target = tuple[Module, Function]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that will train: usable cores, and GPUs (0: none, or not known)."""

    cores: float
    gpus: int = 0


@dataclass(frozen=True)
class Program:
    """All that one audit was given. ``texts`` has every parsed file's text, ``modules`` the relevant ones."""

    modules: list[Module]
    texts: list[str] = field(default_factory=list)
    configs: list[ConfigFile] = field(default_factory=list)
    machine: Machine | None = None

    @cached_property
    def regions(self) -> list[Region]:
        """Every training loop and every function that is one step of it."""
        called = {name for module in self.modules for name in regions.loop_calls(module)}
        return [region for module in self.modules for region in regions.find(module, called)]

    @cached_property
    def training(self) -> list[Module]:
        """The files that train."""
        return list({region.module: None for region in self.regions})

    @cached_property
    def loaders(self) -> list[Loader]:
        """Every DataLoader call."""
        found = [loader for module in self.modules for loader in loaders.find(module)]
        feeding = [loaders.region_loader(found, region) for region in self.regions]
        return [replace(one, role="train") if one in feeding and not one.role else one for one in found]

    @cached_property
    def datasets(self) -> list[DatasetClass]:
        """Every Dataset class."""
        return datasets.find(self.modules)

    def dataset(self, loader: Loader) -> DatasetClass | None:
        """The one Dataset class of the tree whose object a loader is given."""
        name = loader.made_class
        found = [one for one in self.datasets if one.name == name]
        return found[0] if len(found) == 1 else None

    @cached_property
    def code(self) -> list[str]:
        """The texts without their comments, as far as a comment without quotation marks can be told."""
        return [re.sub(r"#[^\"'\n]*$", "", text, flags=re.M) for text in self.texts]

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of every source text."""
        return frozenset(word for text in self.texts for word in _WORD.findall(text))

    def mentions(self, *words: str) -> bool:
        """Whether any of the words occurs anywhere in the tree."""
        return not self.words.isdisjoint(words)

    @cached_property
    def gpu_regions(self) -> list[Region]:
        """The regions of files that use CUDA, of files named for training first."""
        found = [region for region in self.regions if uses_cuda(region.module)]
        return sorted(found, key=lambda one: not re.search(r"(^|/)(train|main)[^/]*$", one.module.name))

    # -- what a call runs --------------------------------------------------------------------------------

    @cached_property
    def _functions(self) -> dict[str, list[Target]]:
        found: dict[str, list[Target]] = {}
        for module in self.modules:
            for function in module.functions:
                found.setdefault(function.name, []).append((module, function))
        return found

    def owners(self, name: str) -> list[tuple[Module, ast.ClassDef]]:
        """The classes of the tree of that name."""
        return [(module, node) for module in self.modules for node in module.classes if node.name == name]

    def target(self, module: Module, func: ast.expr) -> Target | None:
        """The function of the tree that an expression is: of the same file, imported, or of ``self``."""
        if isinstance(func, ast.Attribute) and is_self(func.value):
            owner = module.class_of(func)
            found = method(owner, func.attr) if owner else None
            return (module, found) if found else None
        own = module.own(func.id) if isinstance(func, ast.Name) else None
        return (module, own) if own else self._imported(module.qualified(func).lstrip("."))

    def targets(self, module: Module, call: ast.Call) -> list[Target]:
        """As ``target``; a local name that stands for either of two functions gives both."""
        either = value(module, call.func) if isinstance(call.func, ast.Name) else None
        names = [either.body, either.orelse] if isinstance(either, ast.IfExp) else [call.func]
        return [target for name in names if (target := self.target(module, name)) is not None]

    def called(self, region: Region) -> Iterator[tuple[Module, Function]]:
        """The functions of the tree that a region calls at every step."""
        for call in region.calls:
            targets = self.targets(region.module, call)
            if targets and region.every_step(call):
                yield from targets

    def _imported(self, dotted: str) -> Target | None:
        package, _, name = dotted.rpartition(".")
        found = [
            (module, function)
            for module, function in self._functions.get(name, ())
            if package and f".{module.dotted_name}".endswith(f".{package}") and function in module.module.body
        ]
        return found[0] if len(found) == 1 else None

    def callers(self, function: Function) -> Iterator[tuple[Module, ast.Call]]:
        """Calls anywhere in the tree of something of that name."""
        return ((module, call) for module in self.modules for call in module.calls(function.name))


def uses_cuda(module: Module) -> bool:
    """Whether a file moves things to a CUDA device, or to one it is told."""
    text = module.text.text
    return "cuda" in text or ".to(self.device" in text
