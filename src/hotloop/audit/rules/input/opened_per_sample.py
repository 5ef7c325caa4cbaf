"""``input/opened-per-sample``: a container is opened again for every sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import is_fixed
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/opened-per-sample"
_CONTAINERS: Final = frozenset(
    [
        "h5py.File",
        "lmdb.open",
        "zipfile.ZipFile",
        "tarfile.open",
        "sqlite3.connect",
        "netCDF4.Dataset",
        "zarr.open",
        "pyarrow.parquet.ParquetFile",
        "nuscenes.nuscenes.NuScenes",
        "nuscenes.NuScenes",
        "pycocotools.coco.COCO",
    ]
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the path of the container does not depend on the sample: the same file each time."""
    for dataset in tree.datasets:
        for call in dataset.sample_calls():
            name = dataset.module.dotted(call.func)
            if name not in _CONTAINERS or not call.args:
                continue
            if is_fixed(dataset, call.args[0]):
                yield hit(
                    ID,
                    dataset.module,
                    call,
                    "medium",
                    f"{name} opens the same file for every sample: its tables are read and its caches are "
                    "made anew each time.",
                    "Open it once in each worker, on the first sample, and keep it in an attribute.",
                )
                break
