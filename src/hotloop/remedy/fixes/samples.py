"""How samples are made, kept and put together."""

from __future__ import annotations

from hotloop.remedy.remedy import Parameter, Remedy

CACHE_SAMPLES = Remedy(
    summary="Keep samples in shared memory after the first epoch, one copy for all workers.",
    effect="exact",
    indexed=True,
    alters=(
        "samples stay as the first epoch read them; the cache ends where the script is seen to have changed "
        "them before an epoch: the dataset, what its code loads by name, or one of three samples that are "
        "read again (before a short epoch perhaps only what the dataset has at hand); a change that shows in "
        "none of them is not seen (a few items of large arrays and containers, other files), nor one that is "
        "taken back before the epoch ends; a random sample among the first 256 that a process reads ends the "
        "cache too, one that is met later is repeated"
    ),
    parameter=Parameter(
        name="memory",
        kind="size",
        words=("bytes the cache may use, for instance 4GiB; without a value what the machine can spare"),
    ),
    live="hotloop.remedy.live.ring:CacheSamples",
    source="hotloop.fix.feeds:cache_samples",
    depends=True,
    words=(
        "load it by hotloop.feed.Loader(hotloop.feed.cached(dataset), ...), which gathers whole batches; "
        "refused where a second reading of a sample differs"
    ),
)
SHARE_CACHE = Remedy(
    summary="Share one cache of what the files hold between all workers.",
    effect="exact",
    words="hotloop.feed.cached(DATASET, BYTES) around what reads the files; convert what comes out of it",
)
MEMORY_LIMIT = Remedy(
    summary="Bound what a cache of samples may hold.",
    effect="exact",
    also=("memory/unbounded-cache", "memory/host-growth"),
    parameter=Parameter(name="memory", kind="size", words="bytes, for instance 8GiB", default="8GiB"),
    words=(
        "bound the cache: hotloop.feed.cached(dataset, max_bytes={value!r}) in its place, or "
        "functools.lru_cache with a maxsize"
    ),
)
BAKE = Remedy(
    summary="Run the deterministic part of the preprocessing once, into memory-mapped files.",
    effect="exact",
    indexed=True,
    stores=True,
    parameter=Parameter(
        name="folder", kind="text", words="the folder to bake into; without a value CLASS.baked"
    ),
    source="hotloop.fix.feeds:bake",
    depends=True,
    words="hotloop bake MODULE:DATASET OUT, then hotloop.feed.Loader(hotloop.feed.Baked(OUT), ...)",
)
PRETRANSFORM = Remedy(
    summary="Transform the whole array once before training instead of sample by sample.",
    effect="exact",
    also=("input/per-sample-conversion", "input/slow-sample", "input/repeated-work"),
    words=(
        "before: __getitem__ returns scaler.transform(self.data[i]); after: self.data = "
        "hotloop.feed.pretransform(self.data, scaler.transform) in __init__, and __getitem__ returns "
        "self.data[i]"
    ),
)
MEMOIZE = Remedy(
    summary="Compute what a function gives for the same arguments, or the same sample of a batch, once.",
    effect="exact",
    alters=(
        "kept results take memory, up to a quarter of what is free; what the function reads besides its "
        "arguments is looked at when an epoch begins, and as often besides as 2 % of the time allow (files "
        "are not), and as often a kept result is computed all the same; the first other one ends it: kept "
        "ones count till then"
    ),
    also=("host/recomputed-targets", "input/slow-sample", "input/slow-collate", "input/single-process"),
    where_named=True,
    live="hotloop.remedy.live.memoize:Memoize",
    parameter=Parameter(
        name="function",
        kind="text",
        words="FILE.py:FUNCTION, as the finding names it",
        finding_key="function",
        needed=True,
    ),
    words=(
        "keep what it gives in a dictionary by its arguments (functools.lru_cache where they are hashable "
        "and what it gives is not changed), or compute it once before training, in the dataset or in a table"
    ),
)
BATCHED_COLLATE = Remedy(
    summary="Stack a batch with one call per field instead of sample by sample.",
    effect="exact",
    words=("in collate_fn stack each field once (torch.stack, numpy.stack), or leave collate_fn away"),
)
BATCHED_GET = Remedy(
    summary="Read a whole batch in one call: a dataset with __getitems__ and indexed arrays.",
    effect="exact",
    also=("input/per-sample-conversion",),
    words=(
        "give the dataset __getitems__(self, indices) that indexes its arrays once and returns the batch, "
        "and every loader of it collate_fn=lambda batch: batch"
    ),
)
BATCHED_CONVERT = Remedy(
    summary="Make one tensor of all rows of a batch instead of one of each, stacked afterwards.",
    effect="exact",
    also=("input/slow-sample",),
    where_named=True,
    source="hotloop.fix.feeds:batched_convert",
    depends=True,
    rewrites=True,
    words=(
        "before: torch.stack([torch.tensor(row) for row in rows]); after: from hotloop.feed import stacked, "
        "and stacked(torch.tensor, rows), or torch.from_numpy(numpy.array(rows, dtype=...)) where all rows "
        "are alike"
    ),
)
CONVERT_ONCE = Remedy(
    summary="Convert the arrays once in __init__ instead of in every __getitem__.",
    effect="exact",
    words=(
        "move the conversion from __getitem__ to __init__: convert the whole array once and index the result"
    ),
)
CROP_FIRST = Remedy(
    summary="Cut a sample's crop before anything is converted or enlarged.",
    effect="exact",
    words="cut the crop first, with a margin where values depend on pixels outside, and convert only that",
)
NUMPY_VIEW = Remedy(
    summary="Write and read the elements of a tensor through a numpy view of its memory.",
    effect="exact",
    alters="a value that torch refuses to store raises numpy's error, or becomes infinite",
    also=(
        "cadence/evaluation",
        "host/python-in-step",
        "host/recomputed-targets",
        "input/slow-collate",
        "input/slow-sample",
        "input/repeated-work",
    ),
    where_named=True,
    words=(
        "before: tensor[i, j] = number in a loop; after: view = tensor.numpy() before the loop and "
        "view[i, j] = number in it (a CPU tensor without gradients shares its memory with the view), "
        "or one operation on the whole tensor"
    ),
)
VECTORIZE_HINT = Remedy(
    summary="Replace a Python loop in the step by tensor operations.",
    effect="numeric",
    alters="another order of additions rounds differently",
    words="write the loop as operations on whole tensors; there is no automatic rewrite",
)
DROP_UNUSED_FIELDS = Remedy(
    summary="Load, collate and ship only the fields the loop reads.",
    effect="exact",
    parameter=Parameter(
        name="fields", kind="text", words="the fields to leave out, with commas", finding_key="unused"
    ),
    source="hotloop.fix.fields:drop_unused_fields",
    words="return only the fields that the loop reads from __getitem__",
)
BACKGROUND_BATCHES = Remedy(
    summary="Make the next batch in the background while this one is computed.",
    effect="exact",
    alters="random numbers drawn for batches are other ones, from a generator that torch's seeds",
    also=("input/single-process", "input/slow-sample"),
    words=(
        "before: x, y = get_batch() in the loop; after: next_batch = "
        "hotloop.feed.Background(get_batch) before the loop, x, y = next_batch() in it, "
        "next_batch.close() behind it; get_batch must not read what the loop changes"
    ),
)
SHIP_UINT8 = Remedy(
    summary="Ship images as bytes, and convert them to floats on the device.",
    effect="numeric",
    alters="the conversion on the device may round differently in the last bit",
    also=("transfer/oversized-dtype",),
    words=(
        "before: the dataset returns image.float() / 255; after: it returns the uint8 image, and the "
        "loop converts: x = x.to(device, non_blocking=True).float().div_(255), with the normalization"
        " behind it"
    ),
)
