"""Colours and letters of the phases: one hue per bottleneck class, so that a bar reads as a diagnosis."""

from __future__ import annotations

from typing import Final

#: Phase -> (letter of the plain bar, colour on a light page, colour on a dark page).
PHASE_MARKS: Final = {
    "startup": ("u", "#8a94a3", "#78839a"),
    "data_wait": ("D", "#e07b1a", "#f0913a"),
    "transfer": ("T", "#c9a400", "#dfbd2c"),
    "forward": ("F", "#3b78d8", "#5b95ee"),
    "backward": ("B", "#1f4fa3", "#3d6fc9"),
    "optimizer": ("O", "#2a9db0", "#41b7c9"),
    "sync": ("S", "#d6455d", "#ee6379"),
    "collective": ("C", "#7d55c7", "#9c78e6"),
    "evaluation": ("E", "#2f9e5b", "#45b873"),
    "checkpoint": ("K", "#8d6239", "#b0834f"),
    "logging": ("L", "#c2479c", "#dd68b8"),
    "epoch_gap": ("G", "#f2ab63", "#c97424"),
    "other": ("X", "#b98a94", "#a9737f"),
    "unaccounted": (".", "#d5d9de", "#454c57"),
}

#: Severity -> (colour on a light page, colour on a dark page).
SEVERITY_MARKS: Final = {
    "high": ("#c5221f", "#ff7b72"),
    "medium": ("#b06000", "#f0a040"),
    "low": ("#5f6b7a", "#98a4b3"),
    "info": ("#5f6b7a", "#98a4b3"),
}

#: Name -> (light, dark): surfaces, text, code and the lines of charts.
PAGE: Final = {
    "bg": ("#fbfbfa", "#12151a"),
    "panel": ("#ffffff", "#191d24"),
    "sunk": ("#f3f4f4", "#0e1115"),
    "ink": ("#1b2027", "#e4e8ee"),
    "soft": ("#57616e", "#a0abb9"),
    "edge": ("#dfe2e6", "#2b313b"),
    "grid": ("#e9ebee", "#262c35"),
    "link": ("#1d5fbf", "#7fb0ff"),
    "hit": ("#fff1d6", "#3a2f17"),
    "high": ("#c5221f", "#ff7b72"),
    "medium": ("#a15a00", "#f0a040"),
    "low": ("#5f6b7a", "#98a4b3"),
    "good": ("#1d7a45", "#5cc98a"),
    "code-k": ("#8430ad", "#c79bf0"),
    "code-s": ("#23703f", "#8fd0a0"),
    "code-n": ("#a14a00", "#eab07a"),
    "code-c": ("#66707c", "#8b97a6"),
    "l-0": ("#2f6bd0", "#6ea4f7"),
    "l-1": ("#d9731a", "#f2984a"),
    "l-2": ("#2f9e5b", "#52c483"),
    "l-3": ("#8c55c9", "#b58cf0"),
    "l-4": ("#c2479c", "#e57cc2"),
    "l-5": ("#5f6b7a", "#98a4b3"),
}
