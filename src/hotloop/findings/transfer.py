"""Copies between host and device."""

from hotloop.findings.entry import Entry

ENTRIES = {
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
}
