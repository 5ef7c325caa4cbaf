"""What other tools say about the same planted cases, in an environment of their own (``peer_environment``).

    python benchmarks/accuracy/peers.py [--peers DIR] [--only REGEX] [--out FILE]

``traceml`` is ``traceml run case.py``, the script as it is. ``traceml+`` and ``gpuprof`` get the lines they
ask for (``helped/``), ``datapath`` its profiler around every DataLoader. ``alloc`` is
`alloc diagnose case.py`, which runs nothing. They name a family (input, compute, residual), so only that is
judged, and kindly: «residual» counts wherever the truth is the host, evaluation, checkpoints, logging or
collectives.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from case import Case, load  # noqa: E402
from peer_environment import environment  # noqa: E402

RESIDUAL = frozenset({"host", "evaluation", "checkpoint", "logging", "collective"})
FAMILIES: Mapping[str, frozenset[str]] = {
    "input": frozenset({"input"}),
    "transfer": frozenset({"transfer"}),
    "compute": frozenset({"device"}),
    "residual": RESIDUAL,
    "nothing": frozenset(),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", type=Path, default=HERE.parents[1] / ".bench" / "peers", help="their environment"
    )
    parser.add_argument("--only", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per case")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    binaries = environment(args.peers.resolve()).parent
    rows = []
    for case in load(HERE / "cases", args.only):
        for tool in args.tools:
            row = try_case(case, tool, binaries, args.timeout)
            mark = "ok  " if row["right"] else "FAIL"
            print(f"{mark} {case.name:<38} {tool:<9} {row['family']:<9} {row['said'][:90]}", flush=True)
            rows.append(row)
    print()
    result = {
        "machine": {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()},
        "summary": {tool: summary([row for row in rows if row["tool"] == tool]) for tool in args.tools},
        "rows": rows,
    }
    for tool, said in result["summary"].items():
        print(f"{tool:>9}  {said}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def try_case(case: Case, tool: str, binaries: Path, timeout_s: float) -> dict[str, Any]:
    """One case under one peer, judged by family."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            family, said = TOOLS[tool](case, binaries, Path(folder), timeout_s)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            family, said = "nothing", f"did not run: {error}"
    truth = frozenset(case.bottleneck)
    right = family in ("compute", "nothing") if case.healthy else bool(FAMILIES[family] & truth)
    wrongly_input = family == "input" and "input" not in truth
    verdict = {"family": family, "said": said, "right": right, "wrongly_input": wrongly_input}
    return {"case": case.name, "tool": tool, "healthy": case.healthy, **verdict}


def traceml(case: Case, binaries: Path, folder: Path, timeout_s: float) -> tuple[str, str]:
    """The script as it is."""
    return _traceml(case, binaries, folder, timeout_s, str(case.path), case.args)


def traceml_helped(case: Case, binaries: Path, folder: Path, timeout_s: float) -> tuple[str, str]:
    """The script with a step marked."""
    helper = str(HERE / "helped" / "with_traceml.py")
    return _traceml(case, binaries, folder, timeout_s, helper, [str(case.path), *case.args])


def _traceml(
    case: Case, binaries: Path, folder: Path, timeout_s: float, script: str, args: Sequence[str]
) -> tuple[str, str]:
    ranks = ["--nproc-per-node", "2"] if case.launch else []
    tail = ["--args", *args] if args else []
    run([str(binaries / "traceml"), "run", *ranks, script, *tail], case, folder, timeout_s)
    found = list(folder.rglob("final_summary.json"))
    if not found:
        return "nothing", "no summary"
    diagnosis = json.loads(found[0].read_text()).get("primary_diagnosis") or {}
    kind = str(diagnosis.get("kind", ""))
    words = {"INPUT": "input", "H2D": "transfer", "COMPUTE": "compute", "RESIDUAL": "residual"}
    family = next((family for word, family in words.items() if kind.startswith(word)), "nothing")
    return family, f"{kind}: {diagnosis.get('summary', '')}"


def gpuprof(case: Case, binaries: Path, folder: Path, timeout_s: float) -> tuple[str, str]:
    """The script inside its context manager; the first insight that is no cost estimate counts."""
    helper = str(HERE / "helped" / "with_gpuprof.py")
    if case.launch:
        return "nothing", "not tried with several ranks"
    run([str(binaries / "python"), helper, str(case.path), *case.args], case, folder, timeout_s)
    done = run([str(binaries / "gpuprof"), "insights"], case, folder, timeout_s)
    said = [text for text in re.findall(r"^\s*\[[A-Z]+\]\s+(.*)$", done.stdout, re.M) if "cost" not in text]
    if not said:
        return "nothing", "no insight"
    words = {"loader": "input", "PCIe": "transfer", "MFU": "compute", "kernel": "compute", "util": "compute"}
    return next((family for word, family in words.items() if word in said[0]), "nothing"), said[0]


def alloc(case: Case, binaries: Path, folder: Path, timeout_s: float) -> tuple[str, str]:
    """What it reads in the source; its first finding counts."""
    done = run([str(binaries / "alloc"), "diagnose", str(case.path), "--json"], case, folder, timeout_s)
    found = json.loads(done.stdout[done.stdout.index("{") :])["findings"]
    if not found:
        return "nothing", "no finding"
    families = {
        "dataloader": "input", "precision": "compute", "throughput": "compute", "distributed": "residual"
    }  # fmt: skip
    return families.get(found[0]["category"], "nothing"), f"{found[0]['rule_id']}: {found[0]['title']}"


def datapath(case: Case, binaries: Path, folder: Path, timeout_s: float) -> tuple[str, str]:
    """The script with its profiler around every DataLoader; the first finding counts."""
    helper = str(HERE / "helped" / "with_datapath.py")
    if case.launch:
        return "nothing", "not tried with several ranks"
    done = run([str(binaries / "python"), helper, str(case.path), *case.args], case, folder, timeout_s)
    told = re.findall(r"^datapath-doctor: (.*)$", done.stdout, re.M)
    found = json.loads(told[-1]) if told else []
    if not found:
        return "nothing", "no finding" if told else "did not end"
    said = f"{found[0]['rule_id']}: {found[0]['title']}"
    return "residual" if "checkpoint" in said.lower() else "input", said


def run(
    command: Sequence[str], case: Case, folder: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """A command in a scratch folder, pinned as the case asks; this project is not in its environment."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    process = subprocess.Popen(
        case.pinned(command), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # TraceML's aggregator is a session of its own: left alive, it keeps the port from every later run.
        for descendant in psutil.Process(process.pid).children(recursive=True):
            descendant.kill()
        raise
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    planted = [row for row in rows if not row["healthy"]]
    healthy = [row for row in rows if row["healthy"]]
    return (
        f"family right in {sum(row['right'] for row in planted)} of {len(planted)} planted cases, "
        f"{sum(row['right'] for row in healthy)} of {len(healthy)} healthy ones left alone, "
        f"wrongly input-bound {sum(row['wrongly_input'] for row in rows)} times"
    )


TOOLS = {
    "traceml": traceml, "traceml+": traceml_helped, "gpuprof": gpuprof, "alloc": alloc, "datapath": datapath
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
