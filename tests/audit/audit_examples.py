"""The examples of every static rule: ``examples/FAMILY.md`` has a section a rule, a heading a case.

A case named ``bad`` must have the finding, one named ``good`` must not. Code blocks with a file name are
configurations that are given with it. A comment ``# imports``, ``# step`` or ``# train`` stands for what most
examples share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parent / "examples"
_IMPORTS: Final = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
"""
_STEP: Final = """\
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_TRAIN: Final = "def train(model, loader, optimizer, device):\n" + _STEP
_BLOCK: Final = re.compile(r"^```\w+ ?([\w.]*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Example:
    """A source with its configurations, by file name, and whether the rule finds something in it."""

    rule: str
    name: str
    source: str
    configs: dict[str, str]

    @property
    def is_bad(self) -> bool:
        """Whether the rule has to find something."""
        return self.name.startswith("bad")

    def write(self, folder: Path) -> tuple[Path, list[Path]]:
        """Write it as files: the script, and the configurations to give with it."""
        for name, text in {"train.py": self.source, **self.configs}.items():
            (folder / name).write_text(text)
        return folder / "train.py", [folder / name for name in self.configs if name.startswith("config")]


def _examples(page: Path) -> list[Example]:
    found = []
    for section in re.split(r"^## ", page.read_text(), flags=re.M)[1:]:
        rule, *cases = re.split(r"^### ", section, flags=re.M)
        for case in cases:
            name = case.partition("\n")[0]
            (_, source), *configs = _BLOCK.findall(case)
            for mark, text in (("    # step", _STEP), ("# train", _TRAIN), ("# imports", _IMPORTS)):
                source = source.replace(f"{mark}\n", text)
            found.append(Example(rule.strip(), name, source, dict(configs)))
    return found


ALL: Final = [example for page in sorted(EXAMPLES.glob("*.md")) for example in _examples(page)]


def bad(rule: str) -> str:
    """The first source in which a rule finds something."""
    return next(example.source for example in ALL if example.rule == rule and example.is_bad)
