"""Dense matrix peaks of common GPUs in TFLOP/s, from the makers' datasheets (no sparsity, boost clock).

Sources: NVIDIA datasheets of V100, T4, A100, A10, A30, A40, RTX A6000, L4, L40, L40S, H100, H200 and the
GeForce 30 and 40 series (architecture white papers; half precision with 32-bit accumulation).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Pattern of the device's name -> dtype -> TFLOP/s. The first that matches counts.
_PEAKS: Mapping[str, Mapping[str, float]] = {
    r"H200|H100.*(SXM|HBM3|NVL)|GH200": {"float32": 67.0, "tf32": 494.7, "bfloat16": 989.4, "float16": 989.4},
    r"H100": {"float32": 51.0, "tf32": 378.0, "bfloat16": 756.0, "float16": 756.0},
    r"\bA100\b|\bA800\b": {"float32": 19.5, "tf32": 156.0, "bfloat16": 312.0, "float16": 312.0},
    r"\bA10\b": {"float32": 31.2, "tf32": 62.5, "bfloat16": 125.0, "float16": 125.0},
    r"\bA30\b": {"float32": 10.3, "tf32": 82.0, "bfloat16": 165.0, "float16": 165.0},
    r"\bA40\b": {"float32": 37.4, "tf32": 74.8, "bfloat16": 149.7, "float16": 149.7},
    r"RTX A6000": {"float32": 38.7, "tf32": 77.4, "bfloat16": 154.8, "float16": 154.8},
    r"\bL40S\b": {"float32": 91.6, "tf32": 183.0, "bfloat16": 362.0, "float16": 362.0},
    r"\bL40\b": {"float32": 90.5, "tf32": 90.5, "bfloat16": 181.0, "float16": 181.0},
    r"\bL4\b": {"float32": 30.3, "tf32": 60.0, "bfloat16": 121.0, "float16": 121.0},
    r"V100.*SXM": {"float32": 15.7, "float16": 125.0},
    r"V100": {"float32": 14.0, "float16": 112.0},
    r"\bT4\b": {"float32": 8.1, "float16": 65.0},
    r"RTX 4090": {"float32": 82.6, "tf32": 82.6, "bfloat16": 165.2, "float16": 165.2},
    r"RTX 3090": {"float32": 35.6, "tf32": 35.6, "bfloat16": 71.0, "float16": 71.0},
    r"RTX 3080(?! Ti)": {"float32": 29.8, "tf32": 29.8, "bfloat16": 59.5, "float16": 59.5},
}


def peaks(name: str) -> Mapping[str, float]:
    """TFLOP/s by dtype for a device's name, empty for one that is not in the table."""
    return next((found for pattern, found in _PEAKS.items() if re.search(pattern, name)), {})
