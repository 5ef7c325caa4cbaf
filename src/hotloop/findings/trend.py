"""How the speed changes, and what is said of it."""

from hotloop.findings.entry import Entry

ENTRIES = {
    "trend/misleading-metric": Entry(
        "A number the script prints about its own speed does not say what its name says.",
        "Record torch.cuda.Event(enable_timing=True) before and after, and read elapsed_time when it is "
        "printed; or call torch.cuda.synchronize() before both readings, in runs that only measure.",
    ),
    "trend/slow-warmup": Entry(
        "The first steps take so much longer than the steady ones that it shows in the whole run.",
        "Keep what is compiled or tuned for the next run (compile cache, fixed shapes), or warm up with one "
        "batch before what is timed.",
    ),
    "trend/step-outliers": Entry(
        "Rare steps take many times longer than the rest, and together they matter.",
        "Look at what these steps do beside training: evaluation, checkpoints, the garbage collector.",
    ),
    "trend/throughput-decay": Entry(
        "Steps get slower and slower as the run goes on.",
        "Look for what grows with the run: a list that is gone through, a cache, a log that is written anew.",
    ),
}
