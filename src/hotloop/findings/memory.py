"""Memory that grows, runs out, or is handed to and fro."""

from hotloop.findings.entry import Entry

ENTRIES = {
    "memory/device-growth": Entry(
        "The memory allocated on the device grows with every step.",
        "Look for tensors kept from every step with their graph; keep .detach() of them, and read .item() "
        "rarely.",
    ),
    "memory/empty-cache-in-step": Entry(
        "torch.cuda.empty_cache() runs at every step: it waits for the device and gives memory back that the "
        "next step asks for again.",
        "Remove it; PyTorch reuses what it caches.",
    ),
    "memory/evaluation-with-grad": Entry(
        "An evaluation loop builds a graph that nothing uses.",
        "Decorate it with @torch.inference_mode() (or @torch.no_grad()).",
    ),
    "memory/fragmentation": Entry(
        "The device's allocator holds far more memory than tensors ever filled.",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and keep shapes the same from step to step "
        "(pad or bucket).",
        ("expandable-segments",),
    ),
    "memory/host-growth": Entry(
        "The memory of the training process grows steadily, with every step, and will meet the limit.",
        "Look for what is kept from every step: losses or outputs with their graph, lists of metrics, a "
        "cache without a bound.",
    ),
    "memory/near-limit": Entry(
        "At its peak the run took nearly all the memory it may use.",
        "Lower num_workers or prefetch_factor, keep less of the dataset in memory, or raise the limit.",
    ),
    "memory/out-of-memory": Entry(
        "The run ended because memory did.",
        "Lower the batch size, num_workers or prefetch_factor, or raise the limit that was met.",
    ),
    "memory/page-cache-thrash": Entry(
        "The dataset does not fit into memory beside the run: every epoch reads it from storage again.",
        "Make the data smaller (uint8, compressed, cropped once) so that it fits in memory, give the run "
        "more memory, or keep a part of the samples in a cache that does not evict.",
        ("bake", "cache-samples"),
    ),
    "memory/page-faults": Entry(
        "Every step takes much of its memory from the kernel, page by page, and gives it back.",
        "Let the process keep what it frees: keep-freed-memory, or an allocator that does (jemalloc, "
        "tcmalloc).",
        ("keep-freed-memory",),
    ),
    "memory/retain-graph": Entry(
        "retain_graph=True on the only backward of a step: the activations stay in memory until the loss is "
        "replaced, while the next forward pass already makes its own.",
        "Leave retain_graph out. If backward then fails, a tensor of an earlier step is used again: detach "
        "it.",
    ),
    "memory/shared-memory-small": Entry(
        "/dev/shm, in which batches from workers lie, is small against what may wait there.",
        "Give the container more shared memory (docker run --shm-size, --ipc=host), or lower "
        "prefetch_factor, num_workers or the size of a sample.",
        ("prefetch-factor",),
    ),
    "memory/unbounded-cache": Entry(
        "The dataset keeps every sample it made, without a bound, in every process that makes samples.",
        "Bound it, or keep one cache for all workers (hotloop.feed, a memory-mapped file).",
    ),
    "memory/worker-copies": Entry(
        "Each worker grows a copy of the dataset's objects of its own.",
        "Keep the dataset's index in arrays (numpy, torch) instead of lists of Python objects: reading an "
        "object writes its reference count, which copies the page in every worker.",
    ),
    "memory/zero-grad-to-zero": Entry(
        "zero_grad(set_to_none=False) writes zeros over every gradient and keeps their memory during the "
        "forward pass; backward then reads them to add.",
        "Leave set_to_none out (True since torch 2.0) unless code reads p.grad before backward.",
    ),
}
