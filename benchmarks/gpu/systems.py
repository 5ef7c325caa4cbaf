"""The five training systems at full scale on one GPU: raced variant against variant, and observed.

    PYTHONPATH=src python benchmarks/gpu/systems.py [--only NAME...] [--start] [--race] [--observe]

Models, pictures and batches are those of ``--scale full``; of the files only a part is made, as the speed of
a step does not depend on their number. Variants start at the same time and are stopped when warm, so a slow
compilation waits for nobody; those of ``ALONE`` start when the others are done, as they fill the device. Then
each system's variants take turns as in ``workloads.py``, and ``hotloop run`` observes each. ``--scale tiny``
tries this file without a GPU; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

import workloads  # noqa: E402
from hotloop.stats import ratio_interval  # noqa: E402

#: What is made of each system's full data: SCALES["full"] of its data.py with fewer files.
PARTS: dict[str, tuple[Any, ...]] = {
    "tcn_state": (5, 455, 2650),
    "landmarks": (6, 1, 256, 256, 512),
    "bev": (240, 24, 1600, 900, "jpg", 400_000),
    "spikevid": (3, 1, 24, (720, 1280), (10, 396, 640)),
    "heads": (4, 12, (802, 550), 5074, 2),
}
#: Steps until the caches of a part are filled: an epoch.
WARM_STEPS = {"spikevid": 25, "heads": 50, "landmarks": 3}
#: A batch of 256 pictures: two processes of it and the other systems do not fit.
ALONE = ("landmarks",)
#: Seconds of an observed run, where steps or the start are slow.
OBSERVED_S = {"spikevid": 30.0, "landmarks": 60.0}
MAKE = """
import sys
sys.path.insert(0, sys.argv[1])
import data
data.SCALES["full"] = eval(sys.argv[3])
place = (sys.argv[2],) if "heads" in sys.argv[1] else ()
print(data.make_data(*place, scale="full", **({} if place else {"root": sys.argv[2]})))
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), metavar="NAME")
    parser.add_argument("--variants", nargs="+", default=["as_found", "cured"])
    parser.add_argument("--scale", default="full", choices=("tiny", "cpu", "full"))
    parser.add_argument("--start", action="store_true", help="only start every variant, and stop when warm")
    parser.add_argument("--race", action="store_true", help="race variants")
    parser.add_argument("--race-alone", action="store_true", help=f"race {', '.join(ALONE)} too: minutes")
    parser.add_argument("--observe", action="store_true", help="run each variant under hotloop run")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds until a start is given up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of a turn")
    parser.add_argument("--observed", nargs="+", help="the variants observed, if not all that are raced")
    parser.add_argument("--observed-seconds", type=float, default=25.0, help="limit of an observed run")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "hotloop-systems")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(options.only)) as pool:
        folders = dict(
            zip(options.only, pool.map(lambda name: part(name, options), options.only), strict=True)
        )
    result: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": workloads.machine(),
        "scale": options.scale,
        "systems": {},
    }
    together = {name: folder for name, folder in folders.items() if name not in ALONE}
    for group in (together, *({name: folders[name]} for name in ALONE if name in folders)):
        if group and (options.start or options.race):
            raced(group, options, result["systems"])
            write(options.out, result)
    for name in sorted(folders if options.observe else (), key=lambda name: OBSERVED_S.get(name, 0.0)):
        for variant in options.observed or options.variants:
            seen = observe(name, variant, folders[name], options)
            result["systems"].setdefault(name, {}).setdefault("observed", {})[variant] = seen
            write(options.out, result)
    print(as_markdown(result))
    return 0


def write(folder: Path, result: dict[str, Any]) -> None:
    """What is known so far."""
    target = folder / "gpu-systems.json"
    target.write_text(json.dumps(result, indent=1) + "\n")
    target.with_suffix(".md").write_text(as_markdown(result))


def part(name: str, options: argparse.Namespace) -> Path | None:
    """A part of a system's full data, made once; None where the scale makes its own."""
    if options.scale != "full":
        return None
    folder = options.work / "data" / name
    command = [sys.executable, "-c", MAKE, str(ROOT / "workloads" / name), str(folder), repr(PARTS[name])]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"error: no data for {name}:\n{done.stderr[-1500:]}")
    return Path(done.stdout.split()[-1])


def command_of(name: str, variant: str, data: Path | None, options: argparse.Namespace) -> list[str]:
    more = ["--data", str(data)] if data else []
    return workloads.command_of(variant, name, options.scale, options.work / "out" / name, more)


# -- races --------------------------------------------------------------------------------------------------


def raced(folders: dict[str, Path | None], options: argparse.Namespace, systems: dict[str, Any]) -> None:
    """Start all variants of all systems, stop each when it is warm, then race system by system."""
    begun = time.monotonic()
    running: dict[str, list[workloads.Racer]] = {}
    try:
        for name, data in folders.items():
            folder = options.work / name
            folder.mkdir(exist_ok=True)
            running[name] = [
                workloads.Racer(variant, command_of(name, variant, data, options), folder)
                for variant in options.variants
            ]
        every = [(name, racer) for name, racers in running.items() for racer in racers]
        with ThreadPoolExecutor(len(every)) as pool:
            for (name, racer), said in zip(
                every, pool.map(lambda one: warm(*one, begun, options), every), strict=True
            ):
                row = systems.setdefault(name, {}).setdefault("variants", {}).setdefault(racer.name, {})
                row.update(said)
                print(f"{name:<10} {racer.name:<9} {said}", flush=True)
        if options.race:
            for name, racers in running.items():
                ready = [one for one in racers if "error" not in systems[name]["variants"][one.name]]
                if ready and (name not in ALONE or options.race_alone):
                    race(ready, systems[name], options)
    finally:
        for racers in running.values():
            for racer in racers:
                racer.close()


def warm(name: str, racer: workloads.Racer, begun: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run a racer until it is warm; what came of it."""
    wanted = WARM_STEPS.get(name, workloads.COMPARED_STEPS)
    first = None
    while len(racer.rows) < wanted:
        try:
            racer._look()
        except workloads.StoppedError as error:
            return {"error": str(error)[-1500:]}
        if racer.rows and first is None:
            first = time.monotonic() - begun
        if time.monotonic() - begun > options.patience:
            racer._signal(signal.SIGSTOP)
            tail = racer.errors.read_text(errors="replace")[-300:]
            late = {} if len(racer.rows) > workloads.LEAST_STEPS else {"error": f"not warm in time {tail}"}
            return {"first_step_s": first, "warm_steps": len(racer.rows), **late}
    racer._stop()
    late = racer.rows[len(racer.rows) // 2 :]
    return {
        "first_step_s": first,
        "warm_s": time.monotonic() - begun,
        "warm_steps": len(racer.rows),
        "warm_samples_per_s": workloads.samples_per_s(late),
        "device_bytes": device_bytes(racer.process.pid),
    }


def device_bytes(pid: int) -> int | None:
    """What a process holds on the device, as the driver tells it."""
    ask = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(ask, capture_output=True, text=True, timeout=10).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    used = {int(line.split(",")[0]): line.split(",")[1].strip() for line in lines if "," in line}
    found = used.get(pid, "")
    return int(found) << 20 if found.isdigit() else None


def race(racers: Sequence[workloads.Racer], system: dict[str, Any], options: argparse.Namespace) -> None:
    """Turns of one system's variants."""
    for number in range(options.rounds):
        for racer in racers if number % 2 == 0 else reversed(racers):
            try:
                racer.turn(options.seconds)
            except workloads.StoppedError as error:
                system["variants"][racer.name]["error"] = str(error)[-1500:]
                return
    for racer in racers:
        rates = [workloads.samples_per_s(rows) for rows in racer.turns]
        base = [workloads.samples_per_s(rows) for rows in racers[0].turns]
        rows = [row for turn in racer.turns for row in turn]
        pairs = list(zip(racer.rows[:3], racers[0].rows[:3], strict=True))
        system["variants"][racer.name].update(
            samples_per_s=statistics.median(rates),
            turns=rates,
            num_steps=len(rows),
            ratio=list(ratio_interval([workloads.math.log(a / b) for a, b in zip(rates, base, strict=True)])),
            phases_s={p: statistics.fmean(row[p] for row in rows) for p in workloads.PHASES},
            peak_bytes=racer.peak_bytes,
            largest_loss_difference=max(abs(a["loss"] / b["loss"] - 1) for a, b in pairs),
        )
        print(f"{racer.name:<9} {statistics.median(rates):10.1f} samples/s {len(rows)} steps", flush=True)


# -- observed -----------------------------------------------------------------------------------------------


def observe(name: str, variant: str, data: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    """One variant under ``hotloop run``, ended after some seconds; the verdict, and the recording packed."""
    run = options.work / "runs" / f"{name}-{variant}"
    command = command_of(name, variant, data, options)
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    tool = [sys.executable, "-m", "hotloop", "run", "--out", str(run), "--steps", "400", "--", *command]
    process = subprocess.Popen(
        tool, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        process.wait(OBSERVED_S.get(name, options.observed_seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
    try:
        said, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return {"error": "did not end within 60 s of Ctrl-C"}
    if not (run / "report.json").exists():
        return {"error": said[-1500:]}
    report = json.loads((run / "report.json").read_text())
    with tarfile.open(options.out / "systems-recordings.tar", "a") as packed:
        for path in sorted(run.iterdir()):
            if path.name != "report.html" and path.is_file():
                packed.add(path, arcname=f"{run.name}/{path.name}")
    found = [
        f"{finding['severity']} {finding['id']}"
        for finding in report["findings"]
        if finding["severity"] != "info"
    ]
    print(f"{name:<10} {variant:<9} {report['bottleneck']:<9} {report.get('verdict', '')}", flush=True)
    return {"bottleneck": report["bottleneck"], "verdict": report.get("verdict", ""), "findings": found}


def as_markdown(result: dict[str, Any]) -> str:
    lines = [
        f"# The five systems, {result['scale']} scale\n",
        f"{result['machine']['device']}, torch {result['machine']['torch']}, {result['date']}\n",
        "| system | variant | samples/s | beside the first | step | waiting for data | verdict | findings |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, system in result["systems"].items():
        for variant in {**system.get("variants", {}), **system.get("observed", {})}:
            row = system.get("variants", {}).get(variant, {})
            seen = system.get("observed", {}).get(variant, {})
            cells = ["", "", "", ""]
            if "samples_per_s" in row:
                mean, low, high = row["ratio"]
                step = sum(row["phases_s"].values())
                wait = row["phases_s"]["data_wait"] / step
                ratio = f"{mean:.2f} ({low:.2f} - {high:.2f})"
                cells = [f"{row['samples_per_s']:.1f}", ratio, f"{step * 1e3:.1f} ms", f"{wait:.0%}"]
            elif "warm_samples_per_s" in row:
                cells[0] = f"{row['warm_samples_per_s']:.1f} (not raced)"
            elif "error" in row:
                cells[0] = "failed"
            text = seen.get("verdict") or seen.get("error", "")[-80:].replace("\n", " ")
            last = [text, ", ".join(seen.get("findings", []))]
            lines.append(f"| {' | '.join([name, variant, *cells, *last])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
