"""Processor: usable cores, quota, clock policy, memory nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hotloop.doctor.line import Line, Patient, judged


def check(patient: Patient) -> Iterator[Line]:
    """Cores that may be used, and what keeps the rest or their clock away."""
    machine = patient.machine
    cores, count = float(machine["cores"]), int(machine.get("cpu_count") or 1)
    data = {"cores": cores, "cpu_count": count}
    value = f"{cores:g} of {count}" + (f", {model}" if (model := machine.get("cpu_model")) else "")
    advice = (
        "A quota or an affinity keeps the others away; libraries that count cores start too many "
        f"threads: set OMP_NUM_THREADS={max(1, int(cores))} or less for the training process."
    )
    yield judged("processor", "cores", value, advice if cores < count else "", data=data)
    governor = machine.get("cpu_governor")
    if governor == "powersave" and not _pstate():
        advice = "The clock stays low: cpupower frequency-set -g performance (as root)."
        yield judged("processor", "clock policy", governor, advice)
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    if nodes > 1:
        advice = (
            "Keep a training process, its workers and its GPU on one node: "
            "numactl --cpunodebind=N --membind=N for each rank (nvidia-smi topo -m says which)."
        )
        yield Line(
            topic="processor", name="memory nodes", value=str(nodes), advice=advice, data={"nodes": nodes}
        )


def _pstate() -> bool:
    """With these drivers «powersave» still follows the load."""
    try:
        driver = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver").read_text().strip()
    except OSError:
        return False
    return driver in ("intel_pstate", "amd-pstate-epp", "intel_cpufreq")
