"""How fast the audit is, what it finds of planted faults, and what it says of clean scripts.

    python benchmarks/audit.py [--lines 100000] [--corpus FOLDER] [--out FILE]

Speed: copies of a corpus (default: this repository) up to ``--lines``, audited by ``hotloop audit``; limit
10 s of CPU. Recall: every fault of ``PLANTS`` is written into every script that has room for it, one at a
time, and has to be found there; limit 95 %. The scripts were written for the accuracy benchmark and as
workloads, not for this. Clean: the healthy scripts of that benchmark have no finding above ``info``.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from hotloop.audit.audit import audit  # noqa: E402
from hotloop.audit.program import Machine  # noqa: E402

CASES: Final = ROOT / "benchmarks" / "accuracy" / "cases"
LIMIT_S: Final = 10.0
LIMIT_RECALL: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A fault: ``line`` is put ``at`` a place of the script, after ``first`` lines at its top."""

    rule: str
    at: str  # "step": after backward; "sample": first in __getitem__; "loader": an argument of DataLoader
    line: str
    first: str = "import torch"


PLANTS: Final = (
    Plant(rule="memory/empty-cache-in-step", at="step", line="torch.cuda.empty_cache()"),
    Plant(rule="host/gc-pauses", at="step", line="gc.collect()", first="import gc"),
    Plant(rule="host/sync-in-step", at="step", line="torch.cuda.synchronize()"),
    Plant(rule="host/loop-over-parameters", at="step",
          line="for p in model.cuda().parameters(): norms = p.grad.norm().item()"),
    Plant(rule="host/viewer-in-loop", at="step", line="plt.pause(0.01)",
          first="from matplotlib import pyplot as plt"),
    Plant(rule="cadence/checkpoint", at="step", line="torch.save({}, 'last.pt')"),
    Plant(rule="cadence/images", at="step", line="plt.savefig('a.png')",
          first="import matplotlib.pyplot as plt"),
    Plant(rule="cadence/logging", at="step", line="writer.add_histogram('w', weights, 0)"),
    Plant(rule="distributed/barrier-in-step", at="step", line="dist.barrier()",
          first="import torch.distributed as dist"),
    Plant(rule="device/compile-in-loop", at="step", line="net = torch.compile(net)"),
    Plant(rule="input/opened-per-sample", at="sample", line="f = h5py.File('data.h5')", first="import h5py"),
    Plant(rule="input/listing-per-sample", at="sample", line="names = os.listdir('data')", first="import os"),
    Plant(rule="input/device-in-dataset", at="sample", line="t = torch.zeros(3); t = t.cuda()"),
    Plant(rule="input/shallow-prefetch", at="loader", line="prefetch_factor=1"),
    Plant(rule="input/too-many-workers", at="loader", line="num_workers=os.cpu_count()", first="import os"),
    Plant(rule="config/too-many-workers-for-cores", at="loader", line="num_workers=64"),
    Plant(rule="input/same-randomness", at="loader", line="worker_init_fn=lambda i: np.random.seed(0)",
          first="import numpy as np"),
)  # fmt: skip


def planted(text: str, plant: Plant) -> str | None:
    """The script with the fault, None where it has no room for it."""
    tree = ast.parse(text)
    lines = text.splitlines()
    place: Any = next(_places(tree, plant.at), None)
    if place is None:
        return None
    if plant.at == "loader":
        fits = _into_call(lines, place, plant.line)
        if not fits:
            return None
    else:
        at = place.end_lineno if plant.at == "step" else place.lineno - 1
        lines.insert(at, lines[place.lineno - 1][: place.col_offset] + plant.line)
    head = tree.body[0]
    lines.insert((head.end_lineno or 0) if _is_head(head) else 0, plant.first)
    return "\n".join(lines) + "\n"


def _into_call(lines: list[str], call: ast.Call, given: str) -> bool:
    """Write a keyword into a call, for the one of that name; False where its arguments cannot be seen."""
    name = given.partition("=")[0]
    kept = [k for k in call.keywords if k.arg != name]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in kept):
        return False
    if name == "num_workers":
        call.args[:] = call.args[:2]
    parts = [*map(ast.unparse, call.args), *map(ast.unparse, kept), given]
    end = call.end_lineno or call.lineno
    before = lines[call.lineno - 1].encode()[: call.col_offset].decode()
    after = lines[end - 1].encode()[call.end_col_offset :].decode()
    lines[call.lineno - 1 : end] = [f"{before}{ast.unparse(call.func)}({', '.join(parts)}){after}"]
    return True


def _is_head(node: ast.stmt) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _places(tree: ast.Module, at: str) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if at == "step" and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr == "backward":
                yield node
        elif at == "sample" and isinstance(node, ast.FunctionDef) and node.name == "__getitem__":
            yield node.body[0]
        elif at == "loader" and isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            evaluation = any(word in ast.unparse(node) for word in ("val", "test"))
            if name.rpartition(".")[2] == "DataLoader" and node.args and not evaluation:
                yield node


def hosts(corpus: Path | None = None) -> list[Path]:
    """Scripts that faults are planted into: ours, or those of a corpus that train."""
    if corpus is None:
        systems = sorted((ROOT / "workloads").rglob("*.py"))
        return sorted(CASES.glob("*.py")) + [p for p in systems if not _is_called(p.read_text())]
    return [path for path in sorted(corpus.rglob("*.py")) if "test" not in path.as_posix() and _trains(path)]


def _is_called(text: str) -> bool:
    """Whether it holds the step of a loop that stands in another file, and alone does not say so."""
    return ".backward()" in text and "__main__" not in text


def _trains(path: Path) -> bool:
    try:
        text = path.read_text()
        return all(word in text for word in (".backward()", ".step(", "optim")) and bool(ast.parse(text))
    except (OSError, ValueError, SyntaxError):
        return False


def recall(scripts: list[Path]) -> dict[str, tuple[int, int, list[str]]]:
    """For each rule: planted, found, and where it was missed."""
    result: dict[str, tuple[int, int, list[str]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for script in scripts:
            text = script.read_text()
            for plant in PLANTS:
                faulty = planted(text, plant)
                if faulty is None:
                    continue
                copy = Path(scratch) / "script.py"
                copy.write_text(faulty)
                seen = plant.rule in {f.id for f in audit([copy], [], Machine(cores=16)).findings}
                count, found, missed = result.get(plant.rule, (0, 0, []))
                result[plant.rule] = (count + 1, found + seen, missed if seen else [*missed, script.name])
    return result


def false_alarms() -> list[str]:
    """Findings above ``info`` on the healthy scripts."""
    found = []
    for script in sorted(CASES.glob("healthy_*.py")):
        done = audit([script], [], Machine(cores=16))
        found += [f"{script.name}: {f.id}" for f in done.findings if f.severity != "info"]
    return found


def speed(corpus: Path, num_lines: int) -> dict[str, float]:
    """CPU and wall seconds, and peak memory, of one audit of ``num_lines`` copied from a corpus."""
    with tempfile.TemporaryDirectory() as scratch:
        written = _grow(corpus, Path(scratch), num_lines)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "hotloop", "audit", "--json", scratch]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(done.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"lines": written, "files": answer["files"], "rules": answer["rules"], "cpu_s": round(cpu, 2),
            "wall_s": round(wall, 2), "peak_mib": after.ru_maxrss // 1024}  # fmt: skip


def _grow(corpus: Path, folder: Path, num_lines: int) -> int:
    sources = [
        path for path in sorted(corpus.rglob("*.py")) if "site-packages" not in path.parts and path.is_file()
    ]
    written = copy = 0
    while written < num_lines:
        copy += 1
        for path in sources:
            text = path.read_text(errors="replace")
            target = folder / f"copy{copy}" / path.relative_to(corpus).as_posix().replace("tests/", "checks/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            written += text.count("\n") + 1
            if written >= num_lines:
                break
    return written


def _say_recall(by_rule: dict[str, tuple[int, int, list[str]]], words: str) -> tuple[int, int]:
    total, found = sum(c for c, _, _ in by_rule.values()), sum(f for _, f, _ in by_rule.values())
    print(f"recall  {found} of {total} planted faults found ({found / total:.1%}; {words})")
    for rule, (count, seen, missed) in sorted(by_rule.items()):
        where = f"  missed in {', '.join(missed[:3])}" if missed else ""
        print(f"  {rule:36} {seen:4} of {count:4}{where}")
    return found, total


def main() -> int:
    """Print the figures; 1 where a limit is not held."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--corpus", type=Path, help="a folder of training code: copied, and planted into")
    parser.add_argument("--out", type=Path, default=None, help="write the figures as JSON")
    options = parser.parse_args()
    fast = speed(options.corpus or ROOT, options.lines)
    print(f"speed   {fast['lines']:,} lines in {fast['files']:,} files: {fast['cpu_s']:.1f} s of CPU, "
          f"{fast['wall_s']:.1f} s in all, {fast['peak_mib']:,} MiB, {fast['rules']} rules "
          f"(limit {LIMIT_S:.0f} s)")  # fmt: skip
    found, total = _say_recall(recall(hosts()), f"limit {LIMIT_RECALL:.0%}")
    if options.corpus:
        _say_recall(recall(hosts(options.corpus)), "each file of the corpus alone; no limit")
    alarms = false_alarms()
    num_clean = len(list(CASES.glob("healthy_*.py")))
    print(f"clean   {len(alarms)} findings above info on {num_clean} healthy scripts")
    print("".join(f"  {alarm}\n" for alarm in alarms), end="")
    if options.out:
        figures = {"speed": fast, "recall": {"planted": total, "found": found}, "false_alarms": alarms}
        options.out.write_text(json.dumps(figures, indent=2) + "\n")
    return int(fast["cpu_s"] > LIMIT_S or found < LIMIT_RECALL * total or bool(alarms))


if __name__ == "__main__":
    raise SystemExit(main())
