"""What is said of batches, copies and memory."""

from hotloop.findings.finding import Entry

ENTRIES = {
    # How batches are made, and what makes the step wait for them.
    "input/cache-thrash": Entry(
        "The dataset's cache is too small for an epoch: it evicts nearly all before it is asked for again.",
        "Make the cache as large as the dataset where memory allows; else keep the first samples and never "
        "evict, in one cache for all workers (hotloop.feed.cached).",
        ("share-cache", "cache-samples"),
    ),
    "input/cold-start": Entry(
        "The first batch of the run, or of every epoch, takes far longer than any other.",
        "Store what the first pass makes on disk, and keep the workers between epochs.",
        ("persistent-workers",),
    ),
    "input/data-wait": Entry(
        "The step waits for its data, and the record at hand does not say why.",
        "Run the script under `hotloop run`: it measures the making of batches and names the cause.",
    ),
    "input/device-in-dataset": Entry(
        "Every sample is moved to the GPU by itself: a copy from pageable memory for each, and CUDA cannot "
        "be used in forked workers.",
        "Return CPU tensors; move the whole batch in the training loop, with pin_memory=True.",
    ),
    "input/epoch-state-lost": Entry(
        "The dataset is changed in the training process; persistent workers keep the copy they were started "
        "with, so the change never reaches a sample.",
        "Hold the epoch in shared memory (torch.multiprocessing.Value), or let the sampler carry it.",
    ),
    "input/iterator-per-step": Entry(
        "A new iterator is made for every batch: workers start, fill their queues and are thrown away, and "
        "the order is shuffled anew each time.",
        "Keep one iterator outside the loop; make a new one when it raises StopIteration.",
    ),
    "input/listing-per-sample": Entry(
        "The same folder is listed again for every sample.",
        "List it once in __init__ and sort the names: the order of a listing is not fixed.",
    ),
    "input/opened-per-sample": Entry(
        "A container file is opened again for every sample: its tables are read and its caches are made anew "
        "each time.",
        "Open it once in each worker, on the first sample, and keep it in an attribute.",
    ),
    "input/padding": Entry(
        "Every sequence is padded to one length, and most batches hold none that long.",
        "Pad each batch to its longest sequence in the collate function (transformers: padding=True, "
        "DataCollatorWithPadding, no pad_to_max_length), on a GPU to a multiple of 8; where shapes must stay "
        "(torch.compile, CUDA graphs), to one of a few lengths.",
    ),
    "input/per-sample-conversion": Entry(
        "Every sample is converted by itself: the call costs far more than the work it does on one row.",
        "Convert the whole array once when the dataset is built, or one batch at a time in collate_fn or "
        "__getitems__; leave only indexing in __getitem__.",
        ("crop-first", "convert-once", "bake", "batched-convert"),
    ),
    "input/prefetch-past-epoch": Entry(
        "The workers may hold more batches ready than an epoch has.",
        "Pass prefetch_factor=2 with at most half as many workers as an epoch has batches.",
    ),
    "input/repeated-work": Entry(
        "The same samples are made in the same way in every epoch.",
        "Do this work once: keep the made samples in memory where they fit, or write them to a memory-mapped "
        "file before training; leave random augmentation after it.",
        ("cache-samples", "bake"),
    ),
    "input/respawned-workers": Entry(
        "Every epoch starts new worker processes, waits for their first batch, and stops them again.",
        "Make the loader once, before the loop, with persistent_workers=True.",
        ("persistent-workers", "no-workers"),
    ),
    "input/same-randomness": Entry(
        "All workers, or all epochs, draw the same random numbers.",
        "Make the generator in the worker, on the first sample, seeded with torch.initial_seed().",
    ),
    "input/shallow-prefetch": Entry(
        "Too few batches lie ready: a slow one is felt at once.",
        "Leave prefetch_factor out (2), or raise it while memory allows.",
        ("prefetch-factor",),
    ),
    "input/single-process": Entry(
        "Batches are made in the training process: while a batch is made nothing is trained.",
        "Pass num_workers (start with 4 per GPU) and persistent_workers=True.",
        ("num-workers",),
    ),
    "input/slow-collate": Entry(
        "Putting samples together to a batch takes a large part of making it.",
        "Stack a batch with one call per field, or read it in one call (__getitems__).",
        ("batched-get", "batched-collate", "batched-convert"),
    ),
    "input/slow-sample": Entry(
        "One line takes most of the time it takes to make a batch, and the step waits for it.",
        "Write it with array operations (slices, broadcasting, numpy.where).",
        ("cache-samples", "bake"),
    ),
    "input/slow-storage": Entry(
        "The making of batches waits for reads from storage.",
        "Copy the data to local fast storage or memory before training, pack small files into one large "
        "file, or keep decoded samples in a cache.",
        ("cache-samples", "bake"),
    ),
    "input/straggling-samples": Entry(
        "A few samples take many times longer than the rest.",
        "Find out what is special about the slow samples and cut, cache or store them ready; in_order=False "
        "and a larger prefetch_factor let other batches overtake.",
        ("in-order-false", "prefetch-factor"),
    ),
    "input/too-few-workers": Entry(
        "The workers make batches all the time and still the step waits; there is room for more of them.",
        "Raise num_workers.",
        ("num-workers",),
    ),
    "input/too-many-workers": Entry(
        "There are far more workers than cores, or than the work can use, and it costs.",
        "Use len(os.sched_getaffinity(0)) less 1 or 2, divided by the processes on the machine.",
        ("num-workers",),
    ),
    "input/unsharded-stream": Entry(
        "Every worker of an IterableDataset yields the whole stream.",
        "Split the stream in __iter__ by torch.utils.data.get_worker_info().",
    ),
    "input/unused-fields": Entry(
        "Parts of every batch are loaded, made and shipped, and nothing in training reads them.",
        "Leave them out of what __getitem__ returns, or load them only where they are used.",
        ("drop-unused-fields",),
    ),
    "input/whole-file-per-sample": Entry(
        "One file with all samples is read whole for each sample.",
        "Read it once in __init__; an array larger than memory with numpy.load(mmap_mode='r').",
    ),
    "input/worker-transport": Entry(
        "Batches cost more to ship from a worker than to make, or taking them over slows the step.",
        "Make small samples in the training process, or let workers write into shared memory that is used "
        "again (hotloop.feed.Loader).",
        ("no-workers", "ring-loader"),
    ),
    # Copies between host and device.
    "transfer/blocking": Entry(
        "The batch is pinned, and the copy does not pass non_blocking=True: the host waits for it.",
        "Pass non_blocking=True where the batch is copied: x.to(device, non_blocking=True).",
        ("non-blocking",),
    ),
    "transfer/created-on-host": Entry(
        "A tensor is made on the host and then copied to the device at every step; from pageable memory the "
        "host waits for the copy.",
        "Make it there: pass device=… to the function that makes it.",
    ),
    "transfer/many-small": Entry(
        "Many small tensors are copied to the device one by one; each costs its call, not its bytes.",
        "Stack them on the host and copy once, or let collate_fn return one tensor; make constants on the "
        "device once, before the loop.",
    ),
    "transfer/oversized-dtype": Entry(
        "Images are shipped to the device as floats although they were bytes: four times the bytes.",
        "Return uint8 from the dataset, copy, and then convert and normalize on the device: x = x.to(device, "
        "non_blocking=True).float().div_(255).",
    ),
    "transfer/pageable": Entry(
        "Batches are copied to the device from ordinary memory.",
        "Pass pin_memory=True to the DataLoader and non_blocking=True to the copies.",
        ("pin-memory", "non-blocking"),
    ),
    "transfer/pin-no-effect": Entry(
        "pin_memory=True is set, and the batches that are copied are not pinned all the same.",
        "Give the batch class a pin_memory() method (or return tensors, dicts and lists, which DataLoader "
        "pins by itself), and do not make new host tensors from the batch before copying it.",
    ),
    # Memory that grows, runs out, or is handed to and fro.
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
