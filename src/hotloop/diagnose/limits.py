"""Every threshold of the diagnosis in one place, each with the source it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Thresholds. Shares are of the training span."""

    #: Fewer steady steps than this say nothing about a rate (central limit: the interval is wider than most
    #: effects).
    min_steps: int = 8
    #: A shorter training span is dominated by start-up.
    min_span_s: float = 0.3
    #: Below this share a cause is not worth a person's time; findings under it are info or silent.
    worth_fixing_ratio: float = 0.05
    #: Severity by share of wall time.
    high_ratio: float = 0.30
    medium_ratio: float = 0.10

    #: Later passes over the data that wait less than this part of what the first did find it kept: the first
    #: filled a cache (the page cache, the dataset's own), which noise does not do to every one of them.
    later_pass_ratio: float = 0.33

    # -- host, device, cadence, config, numerics, distributed --------------------------------------------
    #: Samples a group of lines needs before it is spoken of: below it the 95 % interval is wider than +-60 %.
    min_samples: int = 10
    #: Interpreter time inside forward or backward is only a cause from here on: small modules also dispatch.
    python_in_forward_ratio: float = 0.10
    #: Share of the span that a sensible evaluation cadence takes; only what goes beyond it is a cost.
    evaluation_free_ratio: float = 0.05
    #: The same for writing checkpoints.
    checkpoint_free_ratio: float = 0.02
    #: The same for logging, images and progress bars, each.
    logging_free_ratio: float = 0.01
    #: The share that what is logged or written one time in N is to take: more than is free, as each N more
    #: keeps less.
    rarer_ratio: float = 0.05
    #: A loader that waits for more than this share of an evaluation is the evaluation's own cause.
    evaluation_wait_ratio: float = 0.5
    #: Garbage collection under this share is ordinary housekeeping.
    gc_ratio: float = 0.03
    #: Synchronizations under this share are not looked at where no device clock says what they cost.
    sync_ratio: float = 0.05
    #: Idle device time charged to launching phases from which a run is launch-bound (a GUESS so far).
    launch_bound_ratio: float = 0.10
    #: A device busier than this is the bottleneck: precision and kernel advice is worth reading.
    device_bound_ratio: float = 0.70
    #: What precision and kernel settings are assumed to save of device time (assumed, not measured):
    #: the low end of published gains (bf16 1.3x, TF32 1.15x, others 1.05x).
    amp_saves_ratio: float = 0.23
    tf32_saves_ratio: float = 0.13
    small_saves_ratio: float = 0.05
    #: What float32 saves of float64: 46 to 90 % on a CPU (products, convolutions, LSTM; torch 2.13).
    float64_saves_ratio: float = 0.45
    #: What calling an operation on a CPU and going back through it take, probe included (torch 2.13).
    calls_s: float = 60e-6
    #: What checkpointing costs of device time: a forward pass again, 20-30 % where everything is recomputed.
    recompute_costs_ratio: float = 0.15
    #: Fewer samples of forwards within backward than this do not say what they take.
    recompute_samples: int = 8
    #: Models under this many parameters are launch-bound before precision matters.
    large_model_params: int = 5_000_000
    #: Compilations in this many steady steps are a pattern, not a warm-up.
    recompiling_steps: int = 3
    #: The unfused optimizer on a CPU is worth a word when it takes this share with this many tensors.
    optimizer_ratio: float = 0.10
    many_tensors: int = 50
    #: The optimizer as torch makes it on a CPU is worth a launch with a fused one when it takes this share.
    default_optimizer_ratio: float = 0.05
    #: A model whose peak stays under this share of device memory has room for what checkpointing gives up.
    recompute_memory_ratio: float = 0.5
    #: A loop over parameters uses the same memory again for each. Several operations over lists that take
    #: more than a core's cache are slower on a CPU (5 MiB: 2.1 ms by the loop, 2.5 by lists).
    list_operands_bytes: float = 2 << 20
    #: A batch of twice the samples that gives less than this is past the knee (as ``tune --sweep`` has it).
    knee_ratio: float = 1.05
    #: A smaller batch than this is not advised: too few samples for a gradient, or for normalization.
    small_batch: int = 8
    #: What a page costs at least that the kernel hands out and zeroes (``benchmarks/page_faults.py``), and
    #: the share of a step from which on that is worth a launch.
    page_fault_s: float = 1e-6
    page_faults_ratio: float = 0.05
    #: A run that takes this share of what it may use has a reason to take less.
    much_memory_ratio: float = 0.5
    #: Below this share of forward, backward and optimizer another batch size would not show.
    computing_ratio: float = 0.5
    #: Memory share under which a larger batch fits with certainty.
    small_batch_memory_ratio: float = 0.3
    #: A submodule with more than this share of forward and backward is named.
    hot_module_ratio: float = 0.30
    #: Runnable threads per core from which they hold each other up.
    threads_per_core: float = 1.25
    #: A training thread that got less of the core time it wanted waits for its helpers too: 2 threads on 2
    #: cores among 10 other programs took 700 ms for a step of 60 ms with one thread (torch 2.13, libgomp).
    held_up_ratio: float = 0.6
    #: Skipped steps of a gradient scaler after its warm-up (first skips find the scale).
    scaler_skip_ratio: float = 0.05
    scaler_warmup_steps: int = 20
    #: A loss has diverged when the median of its last tenth is this multiple of its best tenth.
    diverged_ratio: float = 3.0
    diverged_min_losses: int = 40
    #: Ranks that differ by less than this in their own work are even.
    straggler_ratio: float = 0.10

    #: Of a run with fewer steady steps than this, whose mean is known to no more than this part of it, the
    #: bottleneck is said with a doubt (interval of Student's t).
    few_steps: int = 20
    few_steps_ratio: float = 0.25
    #: The same where others kept this share of the run's cores busy, and the training thread got less
    #: than this of the core time it wanted; or where the hypervisor took this share of the cores' time.
    others_ratio: float = 0.25
    got_ratio: float = 0.8
    stolen_ratio: float = 0.1

    # -- machinery -----------------------------------------------------------------------------------------
    #: A costed finding below this share of the span is not mentioned at all (timer noise of a shared
    #: machine).
    mention_ratio: float = 0.02
    #: Costs this close are not told apart (neighbouring steps of a shared machine differ by about a tenth).
    tie_ratio: float = 0.10

    # -- input (helper C1's families: input, transfer, memory, trend) ----------------------------------------
    #: A line (or function) with this share of making a batch is the cause to name.
    hot_line_ratio: float = 0.25
    #: A line with this share of the loop's own batch making dominates it.
    dominant_line_ratio: float = 0.5
    #: A batch gathered in less is not worth handing over from another thread: that costs 50 us and what two
    #: threads lose to one interpreter lock (``benchmarks/hand_over.py``, steps of 0.3 and 2 ms).
    hand_over_s: float = 0.0005
    #: Making a batch waits, rather than computes, when it is on a CPU less than this.
    waiting_on_cpu_ratio: float = 0.5
    #: Workers beyond the cores are suggested only for waiting work, and no more than this.
    max_workers: int = 32
    max_workers_per_core: int = 4
    #: Workers count as busy all the time above this share (the rest is taking indices and shipping).
    busy_workers_ratio: float = 0.8
    #: Reads below this per batch are metadata, not data.
    min_read_bytes_per_batch: float = 4096.0
    #: torch's own default is 2; deeper was chosen on purpose.
    shallow_prefetch: int = 2
    #: A sample this many times the usual slowest one of a batch is a straggler.
    straggler_factor: float = 4.0
    #: A quicker sample is no straggler: the scheduler alone takes a thread away for as long (CFS slice).
    straggler_s: float = 0.003
    #: Stragglers sit in at most this share of the batches.
    straggler_batches_ratio: float = 0.34
    #: A first batch is cold when it takes this many steps and this long beyond the making of one.
    cold_start_factor: float = 5.0
    cold_start_s: float = 0.3
    # -- trend -----------------------------------------------------------------------------------------------
    #: Growth from the first to the last quarter of the run; below it a shared machine drifts by itself.
    decay_ratio: float = 0.10
    #: Mann-Kendall over 24 blocks: 4 standard deviations, as neighbouring blocks are not independent.
    trend_z: float = 4.0
    #: Shorter runs show the machine's moods, not a trend.
    trend_span_s: float = 5.0
    #: Fewer steps hold no rare ones.
    outlier_min_steps: int = 50
    #: A step this many medians long stands out, if no more than this share of the steps does.
    outlier_factor: float = 4.0
    outlier_steps_ratio: float = 0.05
    #: Extra seconds of the first steps that are worth a word.
    warmup_s: float = 1.0
    #: In a run longer than this nothing fades any more.
    long_run_s: float = 60.0
    # -- memory ----------------------------------------------------------------------------------------------
    #: Growth over the second half of the span that is worth a word; allocators move by less.
    growth_bytes: float = 64 * 2**20
    #: Growth in a shorter run may be allocators and caches that settle.
    settled_span_s: float = 20.0
    #: A worker's own growth worth a word: its first batches already take some tens of MiB.
    worker_growth_bytes: float = 128 * 2**20
    #: Shares of the memory a run may use.
    near_limit_ratio: float = 0.90
    at_limit_ratio: float = 0.95
    #: Batches waiting in shared memory, as a share of /dev/shm.
    shm_ratio: float = 0.5
    #: Reserved over allocated device memory.
    fragmentation_ratio: float = 1.5
    #: Pages read again after eviction, as a share of what the makers read, and at least this much.
    refault_ratio: float = 0.3
    refault_bytes_per_s: float = 4 * 2**20
    # -- transfer --------------------------------------------------------------------------------------------
    #: Below this per step a copy costs its call, whatever memory it comes from.
    large_copy_bytes: float = 256 * 1024
    #: Copies smaller than this cost their call (about 10 us), not their bytes.
    small_copy_bytes: float = 64 * 1024
    #: More small copies than this in a step.
    many_copies: float = 20.0
