"""``input/unsharded-stream``: every worker of an IterableDataset yields the whole stream."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import made_class
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/unsharded-stream"
_SPLITS = ("get_worker_info", "worker_id", "worker_init_fn", "rank", "shard", "split_by_worker", "islice")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a loader has workers and its IterableDataset's file knows nothing of them, nor of
    chance.
    """
    streams = {dataset.name: dataset for dataset in tree.datasets if dataset.iterable}
    for loader in tree.loaders:
        workers = loader.constant("num_workers", 0)
        if not isinstance(workers, int) or workers < 2 or loader.has("worker_init_fn") is not False:
            continue
        name = made_class(loader)
        dataset = streams.get(name)
        if dataset is None or not dataset.module.method(dataset.node, "__iter__"):
            continue
        text = dataset.module.source.text
        if "random" in text or any(word in text for word in _SPLITS):
            continue
        yield hit(
            ID,
            loader.module,
            loader.call,
            "high",
            f"{name} does not ask which worker it is in: each of the {workers} workers yields every "
            f"sample, so "
            f"an epoch has each sample {workers} times.",
            "Split the stream in __iter__ by torch.utils.data.get_worker_info().",
        )
