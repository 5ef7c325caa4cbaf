"""Ranks that wait for each other, or do each other's work."""

from hotloop.findings.entry import Entry

ENTRIES = {
    "distributed/barrier-in-step": Entry(
        "torch.distributed.barrier() runs at every step: the host of every rank waits for all others, which "
        "the reduction of the gradients already does on the device.",
        "Remove it, or keep it around checkpoints and evaluation.",
    ),
    "distributed/data-parallel": Entry(
        "nn.DataParallel drives all GPUs from one Python process: it copies the model to every GPU at every "
        "step, and one interpreter launches the work of all.",
        "Use DistributedDataParallel with one process per GPU (torchrun).",
    ),
    "distributed/duplicated-samples": Entry(
        "Every rank goes through the whole dataset: an epoch does as many times the work as there are ranks.",
        "Give the loader sampler=DistributedSampler(dataset) and call its set_epoch in every epoch.",
    ),
    "distributed/set-epoch": Entry(
        "DistributedSampler.set_epoch() is called nowhere: every epoch has the same order of samples.",
        "Call sampler.set_epoch(epoch) at the start of every epoch.",
    ),
    "distributed/slow-collective": Entry(
        "Collectives that the script itself calls take a large part of the step.",
        "Reduce metrics once every N steps, packed into one tensor.",
    ),
    "distributed/straggler": Entry(
        "One rank takes longer over its own work in each step, and the others wait for it.",
        "Give every rank the same work; look at what only this rank does, and at its device and cores.",
    ),
    "distributed/unbalanced-input": Entry(
        "One rank waits longer for its data than the others, or the ranks' epochs have different lengths.",
        "Give every rank the same input work: shard by cost, shuffle, use the same storage.",
    ),
    "distributed/unoverlapped-collective": Entry(
        "Reducing gradients is not hidden behind backward: every step waits for the network.",
        "Use gradient_as_bucket_view=True and static_graph=True, accumulate under no_sync(), or compress "
        "gradients (bf16 hook).",
    ),
}
