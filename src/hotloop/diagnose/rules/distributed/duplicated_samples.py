"""Every rank trains on the whole dataset instead of on its part."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence, at, cause, rule
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding
from hotloop.measure.steps import LoaderUse

#: Samplers of torch that know nothing of ranks; any other sampler may shard and is not judged.
_UNAWARE = {"RandomSampler", "SequentialSampler"}
_PLAIN_BATCH_SAMPLERS = {"", "None", "BatchSampler"}


@rule("distributed/duplicated-samples", short_runs=True)
def check(evidence: Evidence) -> Iterable[Finding]:
    """Several ranks, each with a map-style dataset of the same length and a sampler that does not shard."""
    loaders = [loader for rank in evidence.ranks if (loader := rank.train_loader()) is not None]
    jobs = {process.first("process").get("world_size") for process in evidence.recording.ranks}
    if len(loaders) < 2 or len(loaders) < len(evidence.ranks) or jobs != {len(evidence.ranks)}:
        return  # ranks of one job, not independent trainings side by side
    lengths = {loader.dataset.get("len") for loader in loaders}
    if len(lengths) != 1 or not all(_whole(loader) for loader in loaders):
        return
    length = lengths.pop()
    batches = loaders[0].batches_per_epoch * (loaders[0].settings.get("batch_size") or 0)
    if not isinstance(length, int) or (loaders[0].num_iterators >= 2 and batches < 0.9 * length):
        return
    if any(_is_made_for_rank(evidence, loader) for loader in loaders):
        return
    where = loaders[0].where
    shuffled = all(_sampler(loader) == "RandomSampler" for loader in loaders)
    yield cause(
        evidence,
        message=(
            f"All {len(loaders)} ranks go through all {length} samples{at(where)}: "
            f"an epoch does {len(loaders)} times the work."
        ),
        numbers=[
            f"{len(loaders)} ranks, {length} samples in each rank's dataset, sampler {_sampler(loaders[0])}",
            *(["with different seeds the order differs, the samples do not"] if shuffled else []),
        ],
        cost_s=evidence.steps.step_s * (1 - 1 / len(loaders)),
        severity="medium",
        where=where,
        data={"ranks": len(loaders), "samples": length},
    )


def _whole(loader: LoaderUse) -> bool:
    return (
        not loader.settings.get("iterable")
        and _sampler(loader) in _UNAWARE
        and _name(loader.settings.get("batch_sampler")) in _PLAIN_BATCH_SAMPLERS
        and _name(loader.dataset.get("class")) != "Subset"
    )


def _sampler(loader: LoaderUse) -> str:
    return _name(loader.settings.get("sampler"))


def _name(qualified: object) -> str:
    """``RandomSampler`` of ``torch.utils.data.sampler.RandomSampler``."""
    return str(qualified or "").rpartition(".")[2]


#: A rank as an argument, an index or an operand.
_RANK = re.compile(r"[\[(,%=]\s*[\w.]*(rank|process_index)(?![a-z])", re.IGNORECASE)
#: What is done with a rank beside picking data by it.
_OTHERWISE = re.compile(
    r"print|log|save|seed|device|cuda|process_group|[!=]= ?0|not \w*rank|^\s*[\w, ]*rank[\w, ]* = ",
    re.IGNORECASE,
)


def _is_made_for_rank(evidence: Evidence, loader: LoaderUse) -> bool:
    """Whether the loader's file does something by rank that may pick data: ``Shard(rank)``,
    ``files[rank::4]``.
    """
    lines = text_of(evidence, loader.where.file).splitlines() if loader.where is not None else []
    return any(_RANK.search(line) and not _OTHERWISE.search(line) for line in lines)
