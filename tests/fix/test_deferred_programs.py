"""``defer-item`` on programs drawn at random: whatever it writes prints what was printed before.

Loops inside and outside of functions and of other loops, sums, lists and names that begin, are read, changed
and begun anew anywhere; passes without a step, loops that end by an error. Programs it leaves alone are none.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tests.fix.golden import patch_of

NAMES = ("a", "b", "c")
READS = {
    "loss.item()": "read", "float(loss.detach())": "read", "aux.item()": "read",
    "(p > 0).sum().item()": "read_whole", "k.item()": "read_whole",
}  # fmt: skip
AROUND = ("{}", "{}", "{} * n", "n * {}", "2 * {} - n", "{} * 0.5", "-{}", "{} / n", "{} + step")
CHANGES = (
    "{0} /= 3", "{0} *= 2 + 1", "{0} = {0} / 2", "{0} = 0", "{0} = 0.0", "{0} //= 2", "{0} += 1", "{0} **= 2",
    "{0} = None", "{0} = other", "{0} += other", "{0} = {0} * 1.5 - 2",
)  # fmt: skip
SHOWN = (
    "{0}", "{0} / 3", "{0} * 2", "float({0})", "-{0}", "type({0})", "[{0}]", "{0} if {0} else 7", "{0} == 0",
    "max({0}, 1)",
)  # fmt: skip
ADDED = (
    "{0} += {1}", "{0} += {1}", "{0} -= {1}", "{0} = {0} + {1}", "{0} = 0.9 * {0} + {1}", "{0} = {1} + {0}",
)  # fmt: skip


class _Program:
    """A program, and the reads in it that a run would have seen to wait."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.reads: dict[str, list[list[str]]] = {"read": [], "read_whole": []}
        self._seen: Counter[str] = Counter()
        draw = self.draw
        self.kind = {name: draw.choice(["sum", "sum", "sum", "list", "held"]) for name in NAMES}
        outer = self.often(0.6)
        begun: list[list[str]] = [[], []]
        for name in NAMES:
            if self.kind[name] != "held" or self.often(0.4):
                start = "[]" if self.kind[name] == "list" else draw.choice(["0", "0.0", "0.0", "1.5", "2"])
                begun[outer and self.often(0.5)].append(f"{name} = {start}")
        block = [*begun[1], *self._loop("epoch" if outer else "0"), *self._behind()]
        if outer:
            block = ["for epoch in range(3):", *_indented(block)]
        whole = [*begun[0], *block, *self._behind()]
        if self.often(0.6):
            whole = ["def main():", *_indented([*whole, f"return {draw.choice(NAMES)}"]), "print(main())"]
        self.text = "\n".join(["import contextlib", "", *whole, ""])

    def often(self, share: float) -> bool:
        return self.draw.random() < share

    def _loop(self, epoch: str) -> list[str]:
        draw, body = self.draw, ["loss, aux, p, k = batch; n = p.size(0)"]
        body += self._each_nth(0.25)
        for name in sorted(
            draw.sample(NAMES, draw.choice([1, 2, 3])), key=lambda one: self.kind[one] != "held"
        ):
            added = self._added(name)
            head = draw.choice(["if step > 1:", "if n:", "for _ in range(2):"]) if self.often(0.2) else ""
            body += [head, *_indented(added)] if head else added
        body += [self._shown()] if self.often(0.1) else []
        body += self._each_nth(0.6)
        end = draw.choice(["break", "raise KeyError"]) if self.often(0.2) else ""
        body += [f"if step == 4: {end}"] if end else []
        loop = [f"for step, batch in enumerate(batches({epoch})):", *_indented(body)]
        loop += ["else:", *_indented([self._shown()])] if self.often(0.1) else []
        if self.often(0.15):
            return ["try:", *_indented(loop), "except KeyError:", *_indented([self._shown()])]
        return ["with contextlib.suppress(KeyError):", *_indented(loop)] if self.often(0.1) else loop

    def _each_nth(self, share: float) -> list[str]:
        if not self.often(share):
            return []
        inside = [self._shown(), *([self._changed()] if self.often(0.5) else [])]
        return [f"if step % 3 == {self.draw.choice([0, 2])}:", *_indented(inside)]

    def _behind(self) -> list[str]:
        found = [self.draw.choice([self._shown(), self._shown(), self._changed()]) for _ in range(3)]
        return [
            *found[: self.draw.choice([0, 1, 2, 3])],
            *(["if step > 2: " + self._changed()] if self.often(0.3) else []),
        ]

    def _number(self) -> str:
        text = self.draw.choice(list(READS))
        self._seen[text] += 1
        self.reads[READS[text]].append([f"train.py: {text}#{self._seen[text]}"])
        return self.draw.choice(AROUND).format(text)

    def _added(self, name: str) -> list[str]:
        if self.kind[name] == "list":
            return [f"{name}.append({self._number()})"]
        if self.kind[name] == "sum":
            return [self.draw.choice(ADDED).format(name, self._number())]
        other = self.draw.choice([one for one in NAMES if one != name])
        into = f"{other}.append({name})" if self.kind[other] == "list" else f"{other} += {name} * n"
        return [f"{name} = {self._number()}", *([into] if self.often(0.6) else [])]

    def _changed(self) -> str:
        name = self.draw.choice(NAMES)
        if self.kind[name] == "list":
            return self.draw.choice([f"{name} = []", f"{name}.clear()", f"{name} = {name}[-2:]"])
        return self.draw.choice(CHANGES).format(name)

    def _shown(self) -> str:
        name = self.draw.choice(NAMES)
        if self.kind[name] == "list":
            return f"print({name}, sum({name}), len({name}))"
        shown = self.draw.choice(SHOWN).format(name)
        return self.draw.choice([f"print({shown})", f'print(f"{{{shown}}}")', f'print(f"{{{name}:.3f}}")'])


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _batches(epoch: int) -> Iterator[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(epoch)
    for number in range([7, 3, 0][epoch]):
        loss = torch.randn((), generator=generator).to([torch.float32, torch.bfloat16][number % 2])
        aux = torch.rand((), generator=generator, dtype=torch.float64)
        yield loss.requires_grad_() * 1, aux, torch.randn(5, generator=generator), torch.tensor(number)


def _printed(text: str) -> str:
    out = io.StringIO()
    names: dict[str, Any] = {"batches": _batches, "other": torch.tensor(2.5), "__name__": "__main__"}
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(text, "train.py", "exec"), names)
        except Exception as error:
            print(f"ended by {type(error).__name__}")
    return out.getvalue()


def test_programs_print_what_they_printed(tmp_path: Path) -> None:
    written = 0
    for seed in range(200):
        program = _Program(seed)
        (tmp_path / "train.py").write_text(program.text)
        facts = {
            "apply": ["defer-item"],
            "loop": "train.py: for step, batch",
            "rows": program.reads,
            "torch": {"cuda": "12.4", "device_count": 1},
        }
        patch = patch_of(tmp_path, facts)
        for _, new in patch.files.values():
            written += 1
            assert _printed(new.decode()) == _printed(program.text), (seed, patch.diff(tmp_path))
    assert written > 20
