"""How samples are made, and who makes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import DatasetClass
from hotloop.audit.hits import Hit, Rule, at
from hotloop.audit.loaders import Loader
from hotloop.audit.patterns import each_loader, each_sample, fixed_file
from hotloop.audit.program import Program
from hotloop.audit.rules.workers import RULES as OF_WORKERS
from hotloop.source.nodes import argument, chain
from hotloop.source.values import constant, method

#: Calls that read or decode one file.
_READERS: Final = frozenset([
    "PIL.Image.open", "cv2.imread", "cv2.imdecode", "imageio.imread", "imageio.v2.imread",
    "imageio.v3.imread", "skimage.io.imread", "matplotlib.image.imread", "torchvision.io.read_image",
    "torchvision.io.read_video", "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "scipy.io.loadmat",
    "scipy.io.wavfile.read", "torch.load", "torchaudio.load", "librosa.load", "librosa.core.load",
    "soundfile.read", "h5py.File", "nibabel.load", "SimpleITK.ReadImage", "tifffile.imread",
    "rasterio.open", "pandas.read_csv", "json.load", "pickle.load", "open",
])  # fmt: skip
_FOLDERS: Final = ("torchvision.datasets.ImageFolder", "torchvision.datasets.DatasetFolder")
#: Calls that read one file with all samples.
_WHOLE: Final = frozenset([
    "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "torch.load", "pandas.read_csv",
    "pandas.read_parquet", "pandas.read_pickle", "pandas.read_hdf", "scipy.io.loadmat", "joblib.load",
])  # fmt: skip
_CONTAINERS: Final = frozenset([
    "h5py.File", "lmdb.open", "zipfile.ZipFile", "tarfile.open", "sqlite3.connect", "netCDF4.Dataset",
    "zarr.open", "pyarrow.parquet.ParquetFile", "nuscenes.nuscenes.NuScenes", "nuscenes.NuScenes",
    "pycocotools.coco.COCO",
])  # fmt: skip
_LISTS: Final = frozenset(["os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"])
_SCALER: Final = re.compile(r"(^|[._])(\w*scaler|\w*normalizer|pca|imputer|\w*encoder)$", re.I)


def _single_process(program: Program, loader: Loader) -> str:
    """A training loader without workers, whose dataset surely reads a file per sample."""
    alone = loader.role == "train" and loader.constant("num_workers", 0) == 0
    how = _reads_files(program, loader) if alone else ""
    return how and (
        f"The training loader has no workers and {how}: the training process reads and decodes every sample "
        "itself, and trains nothing meanwhile."
    )


def _reads_files(program: Program, loader: Loader) -> str:
    """How the loader's dataset reads files per sample, in words; empty where that cannot be seen."""
    if loader.made is not None and loader.module.dotted(loader.made.func) in _FOLDERS:
        return f"{loader.made_class} decodes an image file for each"
    dataset = program.dataset(loader)
    if dataset is None:
        return ""
    names = (dataset.module.dotted(call.func) for call in dataset.sample_calls)
    name = next((name for name in names if name in _READERS), "")
    return f"{dataset.name}.__getitem__ calls {name} for each" if name else ""


def _device_in_dataset(dataset: DatasetClass, call: ast.Call) -> bool:
    """.cuda() and .to('cuda')."""
    func = call.func
    if not isinstance(func, ast.Attribute) or dataset.module.dotted(func):
        return False
    given = constant(dataset.module, call.args[0]) if call.args else None
    to_cuda = func.attr == "to" and isinstance(given, str) and given.startswith("cuda")
    return to_cuda or (func.attr == "cuda" and chain(func.value) != "")


def _opened_per_sample(dataset: DatasetClass, call: ast.Call) -> str:
    """The path of a container that does not depend on the sample: the same file each time."""
    name = fixed_file(dataset, call, _CONTAINERS)
    return name and (
        f"{name} opens the same file for every sample: its tables are read and its caches are made anew "
        "each time."
    )


def _whole_file_per_sample(dataset: DatasetClass, call: ast.Call) -> str:
    """The path read for a sample does not depend on the sample."""
    name = fixed_file(dataset, call, _WHOLE) if argument(call, "mmap_mode") is None else ""
    return name and f"{name} reads the same file again for every sample."


def _listing_per_sample(program: Program) -> Iterator[Hit]:
    """The folder listed for a sample, or for the length, does not depend on the sample."""
    for dataset in program.datasets:
        length = method(dataset.node, "__len__")
        asked = dataset.module.nodes(ast.Call, length) if length is not None else []
        for call in (*dataset.sample_calls, *asked):
            name = fixed_file(dataset, call, _LISTS)
            if name:
                each = "len()" if call in asked else "sample"
                words = f"{name} lists the same folder again for every {each}."
                yield at(dataset.module, call, "medium", words)
                break


def _per_sample_conversion(program: Program) -> Iterator[Hit]:
    """scaler.transform() in the code of one sample, where the tree uses scikit-learn."""

    def transforms(dataset: DatasetClass, call: ast.Call) -> str:
        owner, _, name = chain(call.func).rpartition(".")
        return (
            f"{owner}.transform() runs for every sample: scikit-learn checks and copies its input at each "
            "call, which costs far more than the arithmetic."
            if name == "transform" and _SCALER.search(owner)
            else ""
        )

    if program.mentions("sklearn"):
        yield from each_sample("medium", transforms)(program)


RULES: Final[dict[str, Rule]] = {
    "input/device-in-dataset": each_sample("medium", _device_in_dataset),
    "input/listing-per-sample": _listing_per_sample,
    "input/opened-per-sample": each_sample("medium", _opened_per_sample),
    "input/per-sample-conversion": _per_sample_conversion,
    "input/single-process": each_loader("medium", _single_process),
    "input/whole-file-per-sample": each_sample("high", _whole_file_per_sample),
    **OF_WORKERS,
}
