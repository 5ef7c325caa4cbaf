"""``input/whole-file-per-sample``: one file with all samples is read whole for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import is_fixed
from hotloop.audit.hit import hit
from hotloop.audit.module import argument
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/whole-file-per-sample"
_READERS: Final = frozenset(
    [
        "numpy.load",
        "numpy.loadtxt",
        "numpy.genfromtxt",
        "torch.load",
        "pandas.read_csv",
        "pandas.read_parquet",
        "pandas.read_pickle",
        "pandas.read_hdf",
        "scipy.io.loadmat",
        "joblib.load",
    ]
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the path read for a sample does not depend on the sample."""
    for dataset in tree.datasets:
        for call in dataset.sample_calls():
            name = dataset.module.dotted(call.func)
            if name not in _READERS or not call.args or argument(call, "mmap_mode") is not None:
                continue
            if is_fixed(dataset, call.args[0]):
                yield hit(
                    ID,
                    dataset.module,
                    call,
                    "high",
                    f"{name} reads the same file again for every sample.",
                    "Read it once in __init__; an array larger than memory with numpy.load(mmap_mode='r').",
                )
                break
