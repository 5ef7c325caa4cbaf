"""Values as JSON can carry them: no NaN, no numpy, no broken text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """The value in JSON types, dataclasses as their fields; NaN becomes None, an unknown object its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.bool_):
        return bool(value)
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    return _text(str(value))


def rounded(values: Any, digits: int = 4) -> list[float | None]:
    """An array with ``digits`` significant digits: what a chart can show, at a third of the size."""
    return [
        float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in np.asarray(values, float)
    ]


def _text(value: str) -> str:
    # Paths that are not UTF-8 reach Python as lone surrogates, which no JSON reader accepts.
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
