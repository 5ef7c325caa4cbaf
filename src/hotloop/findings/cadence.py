"""What training does beside training, and how often."""

from hotloop.findings.entry import Entry

ENTRIES = {
    "cadence/checkpoint": Entry(
        "Checkpoints are written so often, or are so large, that training waits for the disk.",
        "Write checkpoints by time rather than by step, or copy the state to host memory and write it in a "
        "thread.",
        ("less-frequent-checkpoint", "asynchronous-checkpoint"),
    ),
    "cadence/evaluation": Entry(
        "Evaluation is run so often, or over so much data, that training waits for it.",
        "Evaluate every N steps, N such that it takes under 5 % of the time.",
        ("less-frequent-evaluation",),
    ),
    "cadence/images": Entry(
        "Figures are drawn, or images written or sent, while training waits.",
        "Draw images once per evaluation or every few hundred steps, small, or in another process.",
        ("fewer-images",),
    ),
    "cadence/logging": Entry(
        "Writing numbers takes a visible part of each step.",
        "Log every 50-100 steps, and keep running values as tensors until then.",
        ("throttled-logging",),
    ),
    "cadence/progress-output": Entry(
        "Something is printed in every step: print, a progress bar, its postfix.",
        "Print every N steps, or give the progress bar mininterval=1 and set its postfix rarely.",
        ("fewer-prints", "throttled-progress"),
    ),
}
