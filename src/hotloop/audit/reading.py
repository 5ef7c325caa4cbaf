"""Whether a dataset surely reads or decodes a file for every sample."""

from __future__ import annotations

import ast
from typing import Final

from hotloop.audit.datasets import DatasetClass
from hotloop.audit.loaders import Loader
from hotloop.audit.module import chain
from hotloop.audit.tree import Tree

#: Calls that read or decode one file.
READERS: Final = frozenset(
    [
        "PIL.Image.open",
        "cv2.imread",
        "cv2.imdecode",
        "imageio.imread",
        "imageio.v2.imread",
        "imageio.v3.imread",
        "skimage.io.imread",
        "matplotlib.image.imread",
        "torchvision.io.read_image",
        "torchvision.io.read_video",
        "numpy.load",
        "numpy.loadtxt",
        "numpy.genfromtxt",
        "scipy.io.loadmat",
        "scipy.io.wavfile.read",
        "torch.load",
        "torchaudio.load",
        "librosa.load",
        "librosa.core.load",
        "soundfile.read",
        "h5py.File",
        "nibabel.load",
        "SimpleITK.ReadImage",
        "tifffile.imread",
        "rasterio.open",
        "pandas.read_csv",
        "json.load",
        "pickle.load",
        "open",
    ]
)
_FOLDERS: Final = frozenset(["torchvision.datasets.ImageFolder", "torchvision.datasets.DatasetFolder"])
_IN_MEMORY: Final = frozenset(["torch.utils.data.TensorDataset"])


def reads_files(tree: Tree, loader: Loader) -> str:
    """How the loader's dataset reads files per sample, in words; empty where that cannot be seen."""
    node = loader.given.get("dataset")
    made = loader.module.value(node) if isinstance(node, ast.Name | ast.Attribute) else node
    if not isinstance(made, ast.Call):
        return ""
    name = loader.module.dotted(made.func)
    if name in _FOLDERS:
        return f"{name.rpartition('.')[2]} decodes an image file for each"
    last = chain(made.func).rpartition(".")[2]
    classes = [dataset for dataset in tree.datasets if dataset.name == last]
    return reader_of(classes[0]) if len(classes) == 1 else ""


def reader_of(dataset: DatasetClass) -> str:
    """The first call of a dataset that reads a file for each sample, in words."""
    for call in dataset.sample_calls():
        name = dataset.module.dotted(call.func)
        if name in READERS:
            return f"{dataset.name}.__getitem__ calls {name} for each"
    return ""
