"""How samples are made, and who makes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import DatasetClass
from hotloop.audit.loaders import Loader
from hotloop.audit.module import Module
from hotloop.audit.patterns import Hit, Rule, at, each_loader, each_sample, fixed_file
from hotloop.audit.program import Program
from hotloop.source.nodes import LOOPS, argument, chain, is_of_self
from hotloop.source.values import constant, method, value

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


# How worker processes are set up, and what they do not know of each other


_GENERATORS: Final = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random")
_SEEDS: Final = ("numpy.random.seed", "random.seed", "torch.manual_seed")
_COUNTS: Final = ("os.cpu_count", "multiprocessing.cpu_count", "psutil.cpu_count")
_SPLITS: Final = (
    "get_worker_info", "worker_id", "worker_init_fn", "rank", "shard", "split_by_worker", "islice", "random"
)  # fmt: skip


def _shallow_prefetch(program: Program, loader: Loader) -> str:
    """A literal prefetch_factor=1."""
    shallow = loader.role != "evaluation" and loader.constant("prefetch_factor", 2) == 1
    words = "prefetch_factor=1: a worker makes its next batch only when its last one was taken, so one slow "
    return words + "sample stops the step." if shallow else ""


def _too_many_workers(program: Program, loader: Loader) -> str:
    """num_workers is exactly the machine's count of processors."""
    given = loader.given.get("num_workers")
    count = value(loader.module, given) if given is not None else None
    if not isinstance(count, ast.Call) or loader.module.dotted(count.func) not in _COUNTS:
        return ""
    return (
        f"num_workers is {ast.unparse(count)}: every processor of the machine, also those that a container "
        "or a scheduler does not give to this job, and as many again for each GPU's process."
    )


def _unsharded_stream(program: Program, loader: Loader) -> str:
    """A loader has workers and its IterableDataset's file knows nothing of them, nor of chance."""
    workers = loader.count("num_workers", 0)
    dataset = program.dataset(loader)
    if workers < 2 or dataset is None or not dataset.iterable or loader.has("worker_init_fn") is not False:
        return ""
    text = dataset.module.text.text
    if method(dataset.node, "__iter__") is None or any(word in text for word in _SPLITS):
        return ""
    return (
        f"{dataset.name} does not ask which worker it is in: each of the {workers} workers yields every "
        f"sample, so an epoch has each sample {workers} times."
    )


# What is kept between epochs


def _respawned_workers(program: Program, loader: Loader) -> str:
    """A literal number of workers of a loader that a loop of epochs iterates or makes anew."""
    workers = loader.count("num_workers", 0)
    if not workers or loader.role != "train":
        return ""
    if _made_in_training_loop(program, loader):
        words = f"A DataLoader with {workers} workers is made anew in a loop: its processes start again "
        return words + "each time."
    stopped = loader.has("persistent_workers") is False and _iterated_by_epoch(loader)
    return f"The {workers} worker processes are stopped and started again at every epoch." if stopped else ""


def _made_in_training_loop(program: Program, loader: Loader) -> bool:
    module = loader.module
    above = list(module.ancestors(loader.call))
    if any(isinstance(one, ast.If) for one in above):
        return False
    roots = [region.root for region in program.regions if region.module is module]
    loops = [one for one in above if isinstance(one, LOOPS) and _counts_epochs(one)]
    return any(root is not loop and module.holds(loop, root) for loop in loops for root in roots)


def _iterated_by_epoch(loader: Loader) -> bool:
    """Whether a loop over the loader stands in a loop of epochs, in the function that made it."""
    module, target = loader.module, loader.target
    scope = module.function_of(loader.call) or module.module
    for loop in filter(_counts_epochs, module.nodes(ast.For, scope)) if target else ():
        for inner in module.under(loop):
            if inner is not loop and isinstance(inner, ast.For) and _names(inner.iter, target):
                return True
            if isinstance(inner, ast.Call) and any(_names(given, target) for given in inner.args):
                return chain(inner.func) not in ("len", "print", "iter")
    return False


def _names(node: ast.AST, target: str) -> bool:
    return any(chain(part) == target for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))


def _counts_epochs(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.For)
        and "epoch" in f"{ast.unparse(node.target)} {ast.unparse(node.iter)}".lower()
    )


def _epoch_state_lost(program: Program) -> Iterator[Hit]:
    """A loop of epochs changes the dataset of a loader whose workers persist."""
    for loader in program.loaders:
        if loader.constant("persistent_workers", False) is True:
            change = next(_changes(loader), None)
            if change is not None:
                yield at(loader.module, change, "high")


def _changes(loader: Loader) -> Iterator[ast.AST]:
    module = loader.module
    names = {f"{loader.target}.dataset", chain(loader.given.get("dataset"))} - {".dataset", ""}
    for node in module.under(module.function_of(loader.call) or module.module):
        if isinstance(node, ast.Call):
            owner, _, called = chain(node.func).rpartition(".")
            if called == "set_epoch" and owner in names:
                yield node
        elif isinstance(node, ast.Assign):
            owner, _, attribute = chain(node.targets[0]).rpartition(".")
            if "epoch" in attribute and owner in names:
                yield node


def _iterator_per_step(program: Program) -> Iterator[Hit]:
    """next(iter(x)) runs at every step and x is a DataLoader of the same file."""
    for region in program.regions:
        for call in region.calls_named("next"):
            inner = call.args[0] if call.args else None
            if not isinstance(inner, ast.Call) or region.module.builtin(inner.func) != "iter":
                continue
            name = chain(inner.args[0]) if inner.args else ""
            own = [loader.target for loader in program.loaders if loader.module is region.module]
            is_loader = name in own or name.endswith(("loader", "data_loader"))
            if name and is_loader and region.every_step(call):
                yield at(
                    region.module,
                    call,
                    "high",
                    f"next(iter({name})) makes a new iterator at every step: workers start, fill their "
                    "queues and are thrown away for one batch, and the order is shuffled anew each time.",
                )


# How much lies ready


def _prefetch_past_epoch(program: Program, loader: Loader) -> str:
    """Workers, prefetch_factor, batch_size and the number of samples are all literals."""
    workers, ahead = loader.count("num_workers", 0), loader.count("prefetch_factor", 2)
    batch = loader.count("batch_size", 1)
    sampled = "sampler" in loader.given or "batch_sampler" in loader.given
    if loader.role == "evaluation" or sampled or "prefetch_factor" not in loader.given or not batch:
        return ""
    samples = _num_samples(program, loader)
    batches = -(-samples // batch)
    return (
        f"{workers} workers x prefetch_factor={ahead} may hold {workers * ahead} batches; an epoch has "
        f"{batches} ({samples} samples, {batch} each): all of it lies in memory twice."
        if 0 < batches < workers * ahead
        else ""
    )


def _num_samples(program: Program, loader: Loader) -> int:
    """The length of the loader's dataset, where its ``__len__`` returns a literal; 0 where it does not."""
    dataset = program.dataset(loader)
    length = method(dataset.node, "__len__") if dataset is not None else None
    if dataset is None or length is None or not isinstance(length.body[-1], ast.Return):
        return 0
    number = constant(dataset.module, length.body[-1].value)
    return number if isinstance(number, int) and number > 0 else 0


# Random numbers


def _same_randomness(program: Program) -> Iterator[Hit]:
    """A worker_init_fn that seeds with a constant, or a generator that forked workers get copies of."""
    yield from each_loader("high", _seeded_alike)(program)
    if program.mentions("get_worker_info", "worker_init_fn"):
        return
    feeding = [loader for loader in program.loaders if "num_workers" in loader.given]
    shared = {loader.made_class for loader in feeding if loader.constant("num_workers", 0) != 0}
    for dataset in program.datasets:
        if dataset.name in shared:
            yield from _generators(dataset)


def _seeded_alike(program: Program, loader: Loader) -> str:
    given = loader.given.get("worker_init_fn")
    seed = _constant_seed(program, loader.module, given) if given is not None else ""
    return seed and (
        f"worker_init_fn seeds every worker with {seed}: all workers draw the same random numbers, and the "
        "same again at every epoch. Without it PyTorch seeds torch, random and numpy in each worker."
    )


def _constant_seed(program: Program, module: Module, given: ast.expr) -> str:
    """``np.random.seed(0)`` in what each worker runs at its start, whatever its number."""
    function: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | None = None
    if isinstance(given, ast.Lambda):
        function = given
    elif (target := program.target(module, given)) is not None:
        module, function = target
    if function is None:
        return ""
    parameters = {one.arg for one in function.args.args}
    for call in module.nodes(ast.Call, function):
        if module.dotted(call.func) in _SEEDS and call.args:
            seed = constant(module, call.args[0])
            if isinstance(seed, int) and not parameters & {n.id for n in module.nodes(ast.Name, call)}:
                return f"{ast.unparse(call.func)}({seed})"
    return ""


def _generators(dataset: DatasetClass) -> Iterator[Hit]:
    """Generators made in ``__init__`` or when the file is imported, from which samples are drawn."""
    module = dataset.module
    init = method(dataset.node, "__init__")
    for call in module.calls_to(*_GENERATORS):
        parent = module.parents.get(call)
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        name = chain(target)
        drawn = f"{name}." if target is not None and name else "?"
        if not any(chain(one.func).startswith(drawn) for one in dataset.sample_calls):
            continue
        if is_of_self(target) and init is not None and module.function_of(call) is init:
            words = (
                f"{name} is made once and copied into every worker: all workers draw the same random "
                "numbers, and with workers that start anew every epoch repeats them."
            )
        elif parent in module.module.body:
            words = (
                f"{name} is made when this file is imported, and each forked worker of {dataset.name} gets "
                "a copy: all workers draw the same random numbers. PyTorch seeds numpy.random's global "
                "state in workers, not generators like this."
            )
        else:
            continue
        yield at(module, call, "high", words)


RULES: Final[dict[str, Rule]] = {
    "input/device-in-dataset": each_sample("medium", _device_in_dataset),
    "input/listing-per-sample": _listing_per_sample,
    "input/opened-per-sample": each_sample("medium", _opened_per_sample),
    "input/per-sample-conversion": _per_sample_conversion,
    "input/single-process": each_loader("medium", _single_process),
    "input/whole-file-per-sample": each_sample("high", _whole_file_per_sample),
    "input/epoch-state-lost": _epoch_state_lost,
    "input/iterator-per-step": _iterator_per_step,
    "input/prefetch-past-epoch": each_loader("low", _prefetch_past_epoch),
    "input/respawned-workers": each_loader("low", _respawned_workers),
    "input/same-randomness": _same_randomness,
    "input/shallow-prefetch": each_loader("low", _shallow_prefetch),
    "input/too-many-workers": each_loader("low", _too_many_workers),
    "input/unsharded-stream": each_loader("high", _unsharded_stream),
}
