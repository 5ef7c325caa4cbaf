"""What a line of a dataset does, read from its text and from the library it spends its time in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hotloop.measure.steps import LineCost

#: Changing the form of one sample: a scaler's transform, tensor from a list or array, a chain of casts.
_CONVERSION = re.compile(
    r"\b(\w*scaler\w*|\w*encoder\w*|\w*imputer\w*|\w*normali[sz]er\w*)(\[[^\]]*\])?\s*\.\s*(inverse_)?transform\("
    r"|\btorch\.(tensor|as_tensor|from_numpy|FloatTensor|DoubleTensor|LongTensor|IntTensor|ByteTensor|Tensor)\("
    r"|\.astype\(|\b(to_tensor|pil_to_tensor|ToTensor)\b"
    r"|\bnp\.(asarray|array|ascontiguousarray|float32|float64)\(|\.tolist\("
)
_CONVERSION_LIBRARY = re.compile(
    r"^sklearn\.(preprocessing|impute|compose|utils)|^torchvision\.transforms\.(v2\.)?functional"
)
#: Libraries below a conversion's line in which the time is still its own; numpy's sums and means compute.
_PLAIN_LIBRARY = re.compile(
    r"^$|^torch($|\.(?!functional|nn\b|fft))|^numpy($|\._?core(\.(?!_methods)|$))|^PIL\.Image$"
)
#: Time in PIL itself is a conversion's where the line asks for no more than the pixels.
_OF_AN_IMAGE = re.compile(r"\.(resize|thumbnail|reduce|rotate|transform|filter|quantize)\(")
#: Functions of an array library; those that neither convert nor lay out compute something.
_FUNCTION = re.compile(r"\b(?:np|numpy|torch|scipy|F|jnp|cp)((?:\.\w+)+)\(")
_LAYS_OUT = re.compile(
    r"^\.(tensor|as_tensor|from_numpy|\w*Tensor|asarray|array|ascontiguousarray|asfortranarray|u?int\d*|float\d*|bool_?"
    r"|[vh]?stack|cat|concat|concatenate|expand_dims|unsqueeze|squeeze|reshape|ravel|transpose|permute"
    r"|moveaxis|swapaxes|copy|clone|zeros|ones|empty|zeros_like|empty_like|ones_like|full)$"
)
_TENSOR = re.compile(r"\btorch\.(as_)?tensor\(|\b(Float|Double|Long)Tensor\(")
_TAKEN = r"[\w.]+\[[\w.]+\](\.\w+\([\w., ]*\))?"
_GATHER = re.compile(rf"[\w., ()]+ = \(?{_TAKEN}(, {_TAKEN})*\)?")

_READ = re.compile(
    r"\bopen\(|\.read(lines|line|into|_direct|_bytes|_text)?\(|\bnp\.(load|fromfile|memmap|loadtxt|genfromtxt)\("
    r"|\bh5py\b|\b(cv2\.)?imread\(|\btorch\.load\(|\bpd\.read_|\bpickle\.load\(|\bos\.(read|pread|preadv)\("
    r"|\.seek\(|\b(decode_image|read_image)\(|\bmmap\b|\bjson\.load\("
)
_READ_LIBRARY = re.compile(
    r"^(h5py|PIL\.(Image|ImageFile|JpegImagePlugin|PngImagePlugin|TiffImagePlugin)|numpy\.lib|zarr|lmdb|tarfile|zipfile|pickle"
    r"|gzip|bz2|lzma|pathlib|fsspec|pyarrow|netCDF4|rasterio|tifffile|imageio|nibabel|pydicom|pandas\.io|codecs|torch\.serialization)(\.|$)"
)
#: Waiting that no faster disk would remove.
_NO_DISK = re.compile(
    r"\bsleep\(|\brequests\.|\burllib|\bhttpx?\b|\bsocket\b|\bsubprocess\b|\bboto3\b|\bs3\b|\b(lock|queue|cond|event)\w*\."
    r"(acquire|get|wait)\(",
    re.IGNORECASE,
)
_LOCK_LIBRARY = re.compile(r"(multiprocessing\.synchronize|filelock|portalocker|fasteners)\b")
_NO_DISK_LIBRARY = re.compile(
    r"^(requests|urllib3?|http|httpx|socket|ssl|boto|botocore|aiohttp|subprocess|queue|threading|multiprocessing)"
)
#: What holds many samples, opened: its index is read, a connection is made.
_OPEN = re.compile(
    r"\b(ZipFile|TarFile|tarfile\.open|h5py\.File|sqlite3\.connect|lmdb\.(open|Environment)|zarr\.open\w*"
    r"|netCDF4\.Dataset|rasterio\.open)\("
)
#: What turns a compressed image, or a frame of a video, into numbers.
_DECODES = re.compile(
    r"\bImage\.open\(|\b(imread|imdecode|read_image|decode_image|decode_jpeg|decode_png|read_video)\("
    r"|\bpil_loader\(|\bdefault_loader\("
)
_DECODERS = re.compile(r"PIL\.(ImageFile|\w+ImagePlugin)\b|torchvision\.io\b|imageio\b|decord\b|turbojpeg\b")
_SLEEP = re.compile(r"\bsleep\(")

#: Anything that makes a sample differ from one epoch to the next.
_RANDOM = re.compile(
    r"\brandom\b|\brand(int|n|perm|om)?\b|\bnp\.random\b|\btorch\.(rand|randn|randint|randperm|normal|bernoulli|empty\(.*uniform)"
    r"|\.(normal|log_normal|random|uniform|bernoulli|exponential|cauchy|geometric)_?\(|\brng\b"
    r"|\b(default_rng|RandomState|Generator|Random\w+|Augment\w*|augment\w*|dropout|jitter|shuffle|choice|uniform|albumentations|"
    r"imgaug|kornia|secrets|uuid4|time\.time)\b",
    re.IGNORECASE,
)


#: Libraries whose transforms are known by name, and those of them that do the same with a sample every time.
_OF_TRANSFORMS = re.compile(r"^(torchvision|albumentations|kornia|monai|torchio|imgaug|audiomentations)\.")
_SAME_EACH_TIME = re.compile(
    r"^torchvision\.transforms\.(\w+\.)*(Compose|ToTensor|PILToTensor|ToPILImage|Normalize|Resize|CenterCrop|Pad"
    r"|Grayscale|ConvertImageDtype|ToDtype|ToImage|ToPureTensor)$"
)


def is_conversion(line: LineCost) -> bool:
    """Whether the line changes the form of one sample. One that waits, or decodes, does more than that."""
    if line.nature == "waiting" or decodes(line.source, line.library):
        return False
    of_sklearn = line.library.startswith("sklearn") and "transform(" in line.source
    if _CONVERSION_LIBRARY.match(line.library) or of_sklearn:
        return True
    if line.library == "PIL.Image" and _OF_AN_IMAGE.search(line.source):
        return False
    plain = _PLAIN_LIBRARY.match(line.library) and _CONVERSION.search(line.source)
    # A function of an array library that does more than convert, such as a sort, computes something.
    return bool(plain) and all(_LAYS_OUT.match(name) for name in _FUNCTION.findall(line.source))


def is_gather(source: str, library: str) -> bool:
    """Whether a line only takes a batch by its indices out of arrays: nothing of it can be left out.

    What a library does for the index (pandas, h5py, a memory map, a dataset) is its own time, and no gather.
    """
    if _CONVERSION.search(source) or not _PLAIN_LIBRARY.match(library) or "memmap" in library:
        return False
    return _GATHER.fullmatch(source.strip()) is not None


def is_read(line: LineCost) -> bool:
    """Whether the line waits for a file, going by its text and library, and not for a clock, a lock or a
    network.
    """
    if _NO_DISK.search(line.source) or _NO_DISK_LIBRARY.match(line.library):
        return False
    return bool(_READ.search(line.source) or _READ_LIBRARY.match(line.library))


def is_lock(line: LineCost) -> bool:
    """Whether the line takes a lock that processes share: those that want it go one after the other."""
    return _LOCK_LIBRARY.match(line.library) is not None or "flock(" in line.source


def opens(source: str) -> bool:
    """Whether a line opens an archive, a database or a connection that holds more than one sample."""
    return bool(_OPEN.search(source))


def decodes(source: str, library: str) -> bool:
    """Whether a line decodes an image or a frame, by what it calls or by the library it was in."""
    return bool(_DECODERS.match(library) or _DECODES.search(source))


def sleeps(source: str) -> bool:
    """Whether a line waits for a clock, which on a crowded machine looks like wanting a core."""
    return bool(_SLEEP.search(source))


def is_random(text: str) -> bool:
    """Whether source text shows any sign of randomness; errs on the side of yes."""
    return bool(_RANDOM.search(text))


def may_vary(transforms: Iterable[str]) -> bool:
    """Whether a library's transform among these may do something else with a sample in every epoch."""
    return any(_OF_TRANSFORMS.match(one) and not _SAME_EACH_TIME.match(one) for one in transforms)


def only_same(transforms: Sequence[str]) -> bool:
    """Whether there are transforms, and all are a library's that do the same every time."""
    return bool(transforms) and all(_SAME_EACH_TIME.match(one) for one in transforms)


def by_rows(source: str) -> tuple[str, ...]:
    """The remedy of a line that makes tensors of rows or lists, which may be made all at once."""
    return ("batched-convert",) if _TENSOR.search(source) else ()
