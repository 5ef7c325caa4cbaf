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

#: Severity -> colour in a terminal.
SEVERITY_MARKS: Final = {"high": "#ff7b72", "medium": "#f0a040", "low": "#98a4b3", "info": "#98a4b3"}
