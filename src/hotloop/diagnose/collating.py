"""Which sampled lines make batches: single samples, the collate function, or what draws their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop.measure.steps import LineCost, LoaderUse, Steps

#: torch's own collate functions; "" where it is not known.
DEFAULT_COLLATE = ("default_collate", "default_convert", "")
#: From here on a hot line that is not of the collate function by name may be called by it.
_MOST_OF_MAKING = 0.5
_MARGIN = 0.1
#: Phases in which a batch is asked for.
ASKING = ("data_wait", "epoch_gap")
#: Shared memory is unmapped and freed about this fast (48 MiB in 4 to 7 ms on crowded cores).
_FREED_BYTES_PER_S = 10e9


def collate_name(settings: Mapping[str, Any]) -> str:
    """The name of a loader's collate function, or of its class where it is an object; "" when unknown."""
    value = settings.get("collate_fn")
    return str(value or "").rsplit(".", 1)[-1]


def collate_share(loader: LoaderUse) -> float:
    """The share of making a batch that is collating, 0 where nothing was made."""
    made = float(loader.make_s.mean()) if len(loader.make_s) else 0.0
    return loader.collate_s / made if made > 0 else 0.0


def in_collate(loader: LoaderUse, line: LineCost, share: float) -> bool:
    """Whether a line with this share of making is of the user's collate, or of what that calls."""
    name = collate_name(loader.settings)
    if name in DEFAULT_COLLATE:
        return False
    collating = collate_share(loader)
    if name in line.place.function.split("."):
        # A lambda, or an object that samples are made with as well, takes more than collating does.
        return collating == 0 or share <= collating + _MARGIN
    # More than there is outside of collate is inside; shares of samples are counts.
    return collating >= _MOST_OF_MAKING and share > 1 - collating + _MARGIN


def per_sample_lines(loader: LoaderUse) -> tuple[LineCost, ...]:
    """The lines of making single samples, as far as collate's can be told."""
    lines = [(line, line.seconds / loader.lines_total_s) for line in loader.lines if loader.lines_total_s > 0]
    return tuple(line for line, share in lines if not in_collate(loader, line, share))


def making_lines(steps: Steps, loader: LoaderUse) -> tuple[LineCost, ...]:
    """The lines of making batches, without the training loop's own.

    The stack of a forked worker, and of a loader without workers, goes through the line that asks for the
    batch, also in an evaluation: time in a library's code (collate) would be laid at its door.
    """
    asking = [line for line in steps.lines if line.phase in ASKING]
    own = {(line.statement or line.place).at_line for line in asking}
    if steps.source_loop is not None:
        own.add(steps.source_loop.at_line)
    lines = (line for line in loader.lines if line.place.at_line not in own)
    return tuple(line for line in lines if not line.library.startswith("torch.utils.data"))


def at_calls(steps: Steps, *phases: str) -> list[LineCost]:
    """Lines between the phases at the very line that calls for one of these: no cause names what is there."""
    asking = {line.place.at_line for line in steps.lines if line.phase in phases}
    there = [line for line in steps.lines if line.phase == "other" and line.place.at_line in asking]
    return [line for line in there if line.library.split(".")[0] in ("", "torch")]


def giving_back_s(steps: Steps) -> float:
    """Seconds over the span that the loop may pay for dropping the last batch, whose memory it shared with a
    worker: as long as freeing so many bytes takes, out of what was seen from its loader's line to the model.
    """
    loader = steps.train_loader()
    if loader is None or not loader.settings.get("num_workers"):
        return 0.0
    made = [line for line in steps.lines if line.role == "targets" and line.nature != "waiting"]
    seen = {id(line): line.seconds for line in (*at_calls(steps, *ASKING), *made)}
    return min(sum(seen.values()), loader.num_batches * loader.batch_bytes / _FREED_BYTES_PER_S)


def outside_samples(steps: Steps) -> list[LineCost]:
    """The user's lines in the training process that batches waited for, without making samples: a sampler."""
    making = {line.place.at_line for loader in steps.loaders for line in making_lines(steps, loader)}
    return [
        line
        for line in steps.lines
        if line.phase in ASKING and line.place != line.statement and line.place.at_line not in making
    ]
