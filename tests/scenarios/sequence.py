"""Rows from a line of words, for tests about order only.

``I1`` iter() of iterator 1 · ``D1`` a batch of it · ``X1`` its end · ``F`` forward (``F2`` of module 2) ·
``E`` evaluation forward · ``N`` forward without gradients of a module in training mode · ``B`` backward ·
``O`` optimizer step (``O2`` of optimizer 2) · ``S`` a step the scaler skipped · ``O{F,B}`` a closure ·
``C`` checkpoint · ``K`` torch.compile. Every row lasts 1 ms, 0.1 ms apart.
"""

from __future__ import annotations

import re

import numpy as np

from hotloop.record import rows as row
from hotloop.record.recording import ROW_DTYPE, Process

MS = 1_000_000
GAP = 100_000
START_NS = 10**12
TRAIN = row.FORWARD_GRAD | row.FORWARD_TRAINING | row.FORWARD_PARAMS


def process(
    words: str, *, loaders: dict[int, int] | None = None, sites: dict[str, int] | None = None, notes=None
) -> Process:
    """``loaders`` maps iterators to loaders (default: each its own); ``sites`` gives words a call site."""
    loaders, sites = loaders or {}, sites or {}
    rows: list[tuple[int, ...]] = []
    now = START_NS + MS

    def add(word: str) -> None:
        nonlocal now
        letter, number = word[0], int(re.sub(r"\D", "", word) or 1)
        inner = word[word.index("{") + 1 : -1].split(",") if "{" in word else []
        if inner:
            number = int(re.sub(r"\D", "", word[: word.index("{")]) or 1)
        start = now
        now += GAP
        for part in inner:
            add(part)
        now = start + MS if not inner else now + GAP
        value, flags, kind = 0, 0, 0
        match letter:
            case "I":
                kind, value = row.ITER, loaders.get(number, number)
            case "D" | "X":
                kind, value, flags = row.FETCH, 8, row.FETCH_END if letter == "X" else 0
            case "F":
                kind, flags = row.FORWARD, TRAIN
            case "E":
                kind, flags = row.FORWARD, row.FORWARD_PARAMS
            case "N":
                kind, flags = row.FORWARD, row.FORWARD_PARAMS | row.FORWARD_TRAINING
            case "B":
                kind = row.BACKWARD
            case "O":
                kind = row.OPTIMIZER
            case "S":
                kind, number = row.SCALER, 1
            case "C":
                kind, number = row.SAVE, 1
            case "K":
                kind = row.COMPILE
        rows.append((start, now - start, value, sites.get(word, 0), number, 0, flags, kind))
        now += GAP

    for word in words.split():
        add(word)
    table = np.array(sorted(rows, key=lambda r: (r[0], -r[1])), ROW_DTYPE)
    return Process(
        pid=1, ppid=0, role="main", rank=0, start_ns=START_NS, end_ns=now + MS, rows=table, notes=notes or {}
    )
