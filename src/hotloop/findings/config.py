"""Settings that do not do what they say."""

from hotloop.findings.entry import Entry

ENTRIES = {
    "config/accumulation-mismatch": Entry(
        "The optimizer steps after another number of backward passes than is configured.",
        "Use the configured value in the loop, or correct the configuration.",
    ),
    "config/dead-key": Entry(
        "A setting is declared and no code reads it: changing it changes nothing.",
        "Pass it to where it belongs, or remove it.",
    ),
    "config/deprecated-amp": Entry(
        "torch.cuda.amp is deprecated since PyTorch 2.4 and warns at every start.",
        "Write torch.amp.autocast('cuda', …) and torch.amp.GradScaler('cuda', …).",
    ),
    "config/ignored-value": Entry(
        "The training loader was built with another value than the configured one.",
        "Pass the configured value to the DataLoader, or remove it from the configuration.",
        ("num-workers",),
    ),
    "config/learning-rate-not-scaled": Entry(
        "A configuration changes the batch size of the one it is made from, and keeps its learning rate.",
        "Scale the learning rate with the batch for SGD, by its square root for Adam, with warm-up.",
    ),
    "config/overridden-flag": Entry(
        "A switch was configured one way and stood the other way while training.",
        "Keep the line that is meant, and delete the other.",
    ),
    "config/too-many-workers-for-cores": Entry(
        "More loader workers want to compute than there are cores: each batch takes longer.",
        "Use at most one worker less than cores; more pay only where samples wait for storage.",
        ("num-workers",),
    ),
    "config/unmatched-value": Entry(
        "A switch is configured as on, and the code compares it with words it can never equal.",
        "Write what the code compares with, or compare with the configured value there.",
    ),
    "config/unsafe-load": Entry(
        "torch.load(weights_only=False) runs whatever code the file holds.",
        "Leave it out (True since torch 2.6); allow single classes with "
        "torch.serialization.add_safe_globals. For files of your own making, ignore this line.",
    ),
}
