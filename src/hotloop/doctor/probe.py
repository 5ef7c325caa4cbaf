"""Asked in a process of its own, with the python that trains: its torch, and what the hardware gives it.

    python probe.py [--quick]

Prints one JSON object. Standard library and torch only, so that any environment can run it as a file.
"""

import importlib.util
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
    try:
        import torch
    except Exception as error:  # whatever is wrong with an installation is what we were asked to tell
        found: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
    else:
        found = build(torch)
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        found["devices"] = [device(torch, index, quick) for index in range(count)]
    print(json.dumps(found))


def build(torch: Any) -> dict[str, Any]:
    """Versions and switches of the installed torch."""
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cuda_available": torch.cuda.is_available(),
        "cudnn": torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "triton": importlib.util.find_spec("triton") is not None,
    }


def device(torch: Any, index: int, quick: bool) -> dict[str, Any]:
    """Name, copy rates (GB/s) and matrix peaks (TFLOP/s) of one CUDA device."""
    found: dict[str, Any] = {"name": torch.cuda.get_device_name(index)}
    try:
        with torch.cuda.device(index):
            torch.ones(1, device="cuda").add_(1)  # fails where this torch has no kernels for the device
            if not quick:
                found.update(copies(torch))
                found["tflop_per_s"] = matmuls(torch)
    except torch.cuda.OutOfMemoryError:
        found["busy"] = True
    except RuntimeError as error:
        found["error"] = str(error).strip().partition("\n")[0]
    return found


def copies(torch: Any) -> dict[str, float]:
    """Host to device from pinned and pageable memory."""
    pageable = torch.ones(64 << 20, dtype=torch.uint8)
    there = torch.empty_like(pageable, device="cuda")
    kinds = {"pinned": pageable.pin_memory(), "pageable": pageable}
    return {
        f"{name}_gb_per_s": pageable.numel()
        / timed(partial(there.copy_, source, non_blocking=True), torch.cuda.synchronize)
        / 1e9
        for name, source in kinds.items()
    }


def matmuls(torch: Any) -> dict[str, float]:
    """TFLOP/s of a large product by dtype."""
    size, found = 8192, {}
    for name in ("float32", "tf32", "float16", *(["bfloat16"] if torch.cuda.is_bf16_supported() else [])):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        dtype = torch.float32 if name == "tf32" else getattr(torch, name)
        a = torch.randn(size, size, device="cuda", dtype=dtype)
        found[name] = 2 * size**3 / timed(partial(torch.matmul, a, a), torch.cuda.synchronize) / 1e12
    return found


def timed(work: Callable[[], Any], wait: Callable[[], Any] = lambda: None) -> float:
    """Median seconds of one call, after a warm-up."""
    spent = []
    for _ in range(9):
        start = time.perf_counter()
        work()
        wait()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent[2:])


if __name__ == "__main__":
    main()
