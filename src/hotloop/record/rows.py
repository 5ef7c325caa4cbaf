"""The row: one closed interval of host time in 24 bytes. Standard library only; runs in the user's process.

A row is written when its interval closes, so children come before their parents. Intervals of one process are
properly nested (only the training thread is recorded). ``kind`` is the last byte: a row torn by SIGKILL
still has kind 0 and is ignored, and a reader stops at the first row of kind 0.
"""

from __future__ import annotations

import struct
from typing import Final

#: Changes when a row, a note or a table changes meaning.
SCHEMA_VERSION: Final = 1

#: start_ns u64, duration u32, value u32, site u16, obj u16, extra u16, flags u8, kind u8
ROW: Final = struct.Struct("<QIIHHHBB")

#: The same layout for numpy: ``np.frombuffer(data, np.dtype(ROW_FIELDS))``.
ROW_FIELDS: Final = [
    ("start", "<u8"),
    ("dur", "<u4"),
    ("value", "<u4"),
    ("site", "<u2"),
    ("obj", "<u2"),
    ("extra", "<u2"),
    ("flags", "u1"),
    ("kind", "u1"),
]

#: In ``flags``: ``dur`` is in microseconds, not nanoseconds (intervals over 4.29 s).
LONG: Final = 0x80

U32_MAX: Final = 0xFFFFFFFF
U16_MAX: Final = 0xFFFF

# -- kinds ------------------------------------------------------------------------------------------------
# Unless said otherwise: site = id of the user's call site (0: none), obj = 0, value = 0, extra = 0.

#: ``next()`` on a DataLoader iterator. obj = iterator id; value = samples in the batch (0: unknown);
#: extra = batches ready in the queue when asked (U16_MAX: unknown or single-process).
#: flags: FETCH_END on StopIteration, FETCH_WORKERS when worker processes feed it.
FETCH: Final = 1
FETCH_END: Final = 0x01
FETCH_WORKERS: Final = 0x02

#: ``iter(loader)``: constructing or resetting an iterator, workers started here. obj = iterator id; value
#: = loader id. Without workers there is no ``iterator`` note where it would say what the last one said.
ITER: Final = 2

#: Shutting an iterator's workers down. obj = iterator id.
SHUTDOWN: Final = 3

#: Outermost ``Module.__call__``. obj = module id.
FORWARD: Final = 4
FORWARD_GRAD: Final = 0x01  # grad mode was on
FORWARD_TRAINING: Final = 0x02  # module.training
FORWARD_AUTOCAST: Final = 0x04  # inside autocast
FORWARD_PARAMS: Final = 0x08  # the module has parameters (a criterion usually has none)
FORWARD_COMPILED: Final = 0x10  # an OptimizedModule, or module.compile() was called

#: ``torch.autograd.backward`` or ``grad``.
BACKWARD: Final = 5

#: ``Optimizer.step``. obj = optimizer id.
OPTIMIZER: Final = 6
#: ``Optimizer.zero_grad``.
ZERO_GRAD: Final = 7
#: ``clip_grad_norm_`` / ``clip_grad_value_``.
CLIP: Final = 8
#: ``GradScaler.step`` / ``unscale_`` / ``update``. obj: 1 step, 2 unscale, 3 update. A step() without an
#: OPTIMIZER row inside was skipped.
SCALER: Final = 9

#: The host waited for the device: ``item``, ``tolist``, ``bool``, ``numpy``, ``cpu``, ``synchronize`` ...
#: on an
#: accelerator tensor. obj = operation (index into SYNC_OPS); extra = 1 + index of the device, 0 not known.
SYNC: Final = 10
SYNC_OPS: Final = (
    "item",
    "tolist",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "numpy",
    "cpu",
    "synchronize",
    "to",
    "nonzero",
    "copy_",
    "other",
)
#: The user's own code asked a tensor of torch's class without a dimension: a floating-point, a whole number.
SYNC_FLOAT: Final = 0x01
SYNC_WHOLE: Final = 0x02

#: Tensor moved between host and device. value = bytes (saturating); obj = 1 host-to-device, 2 device-to-host.
TRANSFER: Final = 11
TRANSFER_PINNED: Final = 0x01
TRANSFER_NON_BLOCKING: Final = 0x02
TRANSFER_CONVERTS: Final = 0x04  # dtype changes on the way
TRANSFER_FLOAT: Final = 0x08  # a float32/float64 tensor is shipped

#: A collective called from Python. obj = index into COLLECTIVE_OPS; value = bytes.
COLLECTIVE: Final = 12
COLLECTIVE_OPS: Final = (
    "all_reduce",
    "barrier",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "reduce",
    "all_to_all",
    "send",
    "recv",
    "other",
)

#: ``torch.save`` and other checkpoint writers, ``Module.state_dict``. obj: 1 write, 2 state_dict, 3 load.
SAVE: Final = 13

#: Logging. obj = index into LOG_OPS.
LOG: Final = 14
LOG_OPS: Final = ("scalar", "image", "figure", "text", "progress", "tracker", "histogram", "other")

#: A socket was polled, read or written by the training thread. obj: 1 accept/select, 2 recv, 3 send.
SOCKET: Final = 16

#: A garbage collection of generation ``value`` (only pauses over 0.2 ms, or generation 2).
GC: Final = 17

#: A stack sample. start = when taken; dur = time since the previous sample (its weight); value = stack id;
#: extra = how long in us native code held it up since it was due; obj = share of the weight that the thread
#: was on a CPU or ready for one, in 1/1000 (U16_MAX: unknown).
SAMPLE: Final = 18

#: torch.compile compiled a frame.
COMPILE: Final = 19

#: Device clock at a phase boundary. start = host time of the boundary; dur = lag of the device behind the
#: host;
#: obj = kind of the row that begins (or ended, flag DEVICE_END) at this boundary.
DEVICE: Final = 20
DEVICE_END: Final = 0x01

#: A dataset fetcher made one batch (in a worker, or in the main process inside FETCH). value = bytes of
#: the batch
#: (0: not measured for this one); extra = number of samples; obj = worker id + 1 (0: main process).
MAKE: Final = 21
#: Collate inside the MAKE that follows it.
COLLATE: Final = 22
#: The slowest sample inside the MAKE that follows it. value = its dataset index (U32_MAX: unknown).
SLOWEST: Final = 23

#: A submodule's forward (flags 0) or backward (MODULE_BACKWARD) in the module window. obj = module-name
#: id; value = window step.
MODULE: Final = 24
MODULE_BACKWARD: Final = 0x01

#: Zero-length: a loss value. value = float32 bits; extra = checksum of its exact bytes (``--evidence``).
LOSS: Final = 25

#: Zero-length, ``--evidence``: the batch that follows. value = crc32 of its sample indices in order; extra =
#: their sum modulo 2^16; obj = loader id.
ORDER: Final = 26
#: Zero-length, ``--evidence``: one leaf of a batch. value = crc32 of its values, sampled;
#: extra = leaf number; obj = loader id, 0 for what a module was called with.
CONTENT: Final = 27

#: Zero-length: the begin of a step that the script marked (``hotloop.step``). value = samples.
STEP: Final = 28

KIND_NAMES: Final = {
    FETCH: "fetch", ITER: "iter", SHUTDOWN: "shutdown", FORWARD: "forward", BACKWARD: "backward",
    OPTIMIZER: "optimizer", ZERO_GRAD: "zero_grad", CLIP: "clip", SCALER: "scaler", SYNC: "sync",
    TRANSFER: "transfer", COLLECTIVE: "collective", SAVE: "save", LOG: "log", SOCKET: "socket",
    GC: "gc", SAMPLE: "sample", COMPILE: "compile", DEVICE: "device", MAKE: "make", COLLATE: "collate",
    SLOWEST: "slowest", MODULE: "module", LOSS: "loss", ORDER: "order", CONTENT: "content",
    STEP: "step",
}  # fmt: skip
