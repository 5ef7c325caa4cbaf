"""``hotloop bake MODULE:DATASET OUT``: run deterministic preprocessing once, memory-mapped."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from hotloop.cli import arguments
from hotloop.cli.output import say
from hotloop.errors import UsageError
from hotloop.language import said

if TYPE_CHECKING:
    from hotloop.feed import Baked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop bake``."""
    parser.add_argument(
        "dataset",
        metavar="MODULE:DATASET",
        help="a map-style dataset, or a function or class that gives one without arguments; "
        "MODULE is a module's name or a .py file",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to make; built beside, as OUT.partial")
    parser.add_argument(
        "--num-workers",
        metavar="N",
        type=_workers,
        default="auto",
        help='processes that read samples; 0: this one (default: "auto", all usable cores)',
    )
    words = (
        "file or folder the samples come from, may be repeated (default: the paths among the dataset's "
        "parameters); when one changes, the bake is stale"
    )
    arguments.add_many(parser, "--source", "PATH", words, Path)
    words = "replace a bake that is there, forget one that was begun"
    arguments.add_switch(parser, "--overwrite", words)
    arguments.add_switch(parser, "--verify", "read everything back and compare checksums")
    arguments.add_switch(parser, "--ray", "run the parts as Ray tasks (hotloop[ray])")
    arguments.add_json(parser, "what was done as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 0 where OUT now holds the dataset."""
    dataset = load(options.dataset)
    from hotloop.feed import bake

    start = time.monotonic()
    baked = bake(
        dataset,
        options.out,
        num_workers=options.num_workers,
        source=options.source or None,
        overwrite=options.overwrite,
        verify="full" if options.verify else "lazy",
        ray=options.ray,
    )
    wall_s = time.monotonic() - start
    if options.json:
        print(json.dumps(_as_json(baked, wall_s), indent=1))
    else:
        say(_words(baked, wall_s))
    return 0


def load(name: str) -> Any:
    """The dataset that ``MODULE:DATASET`` names.

    Raises:
        UsageError: there is no such module or name, or what it gives is no dataset.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UsageError(
            f"{name!r} does not name a dataset", hint="write MODULE:DATASET, as in data.images:train"
        )
    found: Any = _module(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module_name} has no {attribute!r}")
        found = getattr(found, part)
    if isinstance(found, type) or (callable(found) and not hasattr(type(found), "__getitem__")):
        try:
            found = found()
        except TypeError as error:
            raise UsageError(
                f"{name} cannot be called without arguments: {error}",
                hint="write a function without arguments that returns the dataset, and name that",
            ) from error
        except Exception as error:
            raise UsageError(f"{name} cannot be made: {_told(error)}") from error
    if not hasattr(type(found), "__len__"):
        raise UsageError(
            f"{name} has no __len__: only map-style datasets can be baked",
            hint="an iterable dataset has no indices: put its samples in a list",
        )
    if not len(found):
        raise UsageError(f"{name} has no samples: there is nothing to bake")
    return found


def _module(name: str) -> ModuleType:
    path = Path(name)
    if name.endswith(".py"):
        if not path.is_file():
            raise UsageError(f"{name}: no such file")
        # Under its own name and from its own folder: workers that are started afresh import it again.
        sys.path.insert(0, str(path.resolve().parent))
        name = path.stem
    else:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(f"{name} cannot be imported: {_told(error)}") from error
        raise UsageError(
            f"there is no module {name!r}",
            hint="run from the folder it is in, or give the path of the .py file",
        ) from error
    except Exception as error:
        raise UsageError(f"{name} cannot be imported: {_told(error)}") from error


def _told(error: Exception) -> str:
    """What went wrong in the user's module, and where."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({at.filename}:{at.lineno})"
    return f"{type(error).__name__}: {error}{where}"


def _workers(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not text.isdigit():
        raise argparse.ArgumentTypeError(said(f'{text!r} is not a number of processes from 0 on, or "auto"'))
    return int(text)


def _as_json(baked: Baked, wall_s: float) -> dict[str, Any]:
    manifest = baked.manifest
    return {
        "schema": 1,
        "path": str(baked.path),
        "num_samples": manifest.num_samples,
        "num_bytes": manifest.num_bytes,
        "num_parts": manifest.num_parts,
        "num_parts_kept": baked.num_kept,
        "wall_s": round(wall_s, 3),
        "columns": [
            {"name": name, "kind": field.kind, "dtype": field.dtype, "shape": list(field.shape)}
            for _, name, field in manifest.schema.columns
        ],
        "in_records": [manifest.schema.leaves[position] for position in manifest.schema.loose],
        "versions": manifest.versions,
    }


def _words(baked: Baked, wall_s: float) -> str:
    from hotloop import units

    manifest = baked.manifest
    if manifest.num_parts and baked.num_kept == manifest.num_parts:
        return f"{baked.path} holds this dataset already ({manifest.num_samples:,} samples)"
    kept = f", {baked.num_kept} of {manifest.num_parts} parts from before" if baked.num_kept else ""
    return (
        f"wrote {manifest.num_samples:,} samples, {units.size(manifest.num_bytes)}, "
        f"to {baked.path} in {units.duration(wall_s)}{kept}"
    )
