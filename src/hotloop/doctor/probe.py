"""Asked in a process of its own, with the python that trains: its torch, and what the hardware gives it.

    python probe.py [--quick]

Prints one JSON object. Standard library and torch only, so that any environment can run it as a file.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any


def main() -> None:
    """Print what is known."""
    quick = "--quick" in sys.argv[1:]
    found: dict[str, Any] = {"python": sys.version.split()[0], "executable": sys.executable}
    try:
        import torch
    except Exception as error:  # whatever is wrong with an installation is what we were asked to tell
        found["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(found))
        return
    found.update(build(torch))
    if not quick:
        found["host"] = host(torch)
    if torch.cuda.is_available():
        found["devices"] = [device(torch, index, quick) for index in range(torch.cuda.device_count())]
    print(json.dumps(found))


def build(torch: Any) -> dict[str, Any]:
    """Versions and switches of the installed torch."""
    import importlib.util

    parts = torch.__config__.parallel_info()
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cuda_available": torch.cuda.is_available(),
        "cudnn": torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "openmp": "OpenMP" in parts and "not found" not in parts,
        "triton": importlib.util.find_spec("triton") is not None,
        "sharing_strategy": torch.multiprocessing.get_sharing_strategy(),
    }


def host(torch: Any) -> dict[str, float]:
    """Copy rate (GB/s read and written once) and matrix peaks (GFLOP/s) of the processor."""
    source = torch.ones(64 << 20, dtype=torch.uint8)
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source))
    rates = {"copy_gb_per_s": source.numel() / seconds / 1e9}
    for name in ("float32", "bfloat16"):
        a = torch.ones(1024, 1024, dtype=getattr(torch, name))
        rates[f"{name}_gflop_per_s"] = 2 * 1024**3 / timed(partial(torch.matmul, a, a)) / 1e9
    return rates


def device(torch: Any, index: int, quick: bool) -> dict[str, Any]:
    """Name, memory, copy rates (GB/s) and matrix peaks (TFLOP/s) of one CUDA device."""
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    found = {
        "name": facts.name,
        "memory_bytes": total,
        "free_bytes": free,
        "capability": f"{facts.major}.{facts.minor}",
        "supported": supported(torch, facts),
    }
    if quick or not found["supported"]:
        return found
    try:
        with torch.cuda.device(index):
            found.update(copies(torch))
            found["tflop_per_s"] = matmuls(torch)
    except torch.cuda.OutOfMemoryError:
        found["busy"] = "its memory is taken by other processes: nothing was measured"
    return found


def supported(torch: Any, facts: Any) -> bool:
    """Whether this torch was built for the device."""
    names = torch.cuda.get_arch_list()
    for name in names:
        kind, _, number = name.partition("_")
        major = int("".join(filter(str.isdigit, number))) // 10
        # A binary runs on later minors of its generation, PTX (compute_) on every later device.
        if major == facts.major or (kind == "compute" and major <= facts.major):
            return True
    return not names


def copies(torch: Any) -> dict[str, float]:
    """Host to device from pinned and pageable memory, and on the device."""
    pageable = torch.ones(64 << 20, dtype=torch.uint8)
    pinned = pageable.pin_memory()
    there = torch.empty_like(pageable, device="cuda")
    other = torch.empty_like(there)
    wait = torch.cuda.synchronize
    return {
        "pinned_gb_per_s": pageable.numel()
        / timed(lambda: there.copy_(pinned, non_blocking=True), wait)
        / 1e9,
        "pageable_gb_per_s": pageable.numel() / timed(lambda: there.copy_(pageable), wait) / 1e9,
        "device_copy_gb_per_s": 2 * pageable.numel() / timed(lambda: other.copy_(there), wait) / 1e9,
    }


def matmuls(torch: Any) -> dict[str, float]:
    """TFLOP/s of a large product by dtype."""
    size, found = 8192, {}
    kinds = [
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("float16", torch.float16, False),
    ]
    if torch.cuda.is_bf16_supported():
        kinds.append(("bfloat16", torch.bfloat16, False))
    before = torch.backends.cuda.matmul.allow_tf32
    for name, dtype, tf32 in kinds:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a = torch.randn(size, size, device="cuda", dtype=dtype)
        found[name] = 2 * size**3 / timed(partial(torch.matmul, a, a), torch.cuda.synchronize) / 1e12
    torch.backends.cuda.matmul.allow_tf32 = before
    return found


def timed(work: Callable[[], Any], wait: Callable[[], Any] = lambda: None, turns: int = 7) -> float:
    """Median seconds of one call, after a warm-up."""
    for _ in range(2):
        work()
    wait()
    spent = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        wait()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent)


if __name__ == "__main__":
    main()
