"""``cadence/images`` in source: figures or images are made at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "cadence/images"
_METHODS = ("add_image", "add_images", "add_figure", "savefig")
_NAMES = frozenset(
    [
        "matplotlib.pyplot.savefig",
        "cv2.imwrite",
        "torchvision.utils.save_image",
        "wandb.Image",
    ]
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where an image is drawn, written or sent at every step, or every N up to 10."""
    return in_steps(
        ID,
        tree,
        lambda region, call: (
            region.module.dotted(call.func) in _NAMES
            or (getattr(call.func, "attr", "") in _METHODS and bool(call.args))
        ),
        "medium",
        "{} makes an image {when}: tens of milliseconds on the training thread, and a wait for the device.",
        "Make images every few hundred steps, or in evaluation.",
        most=10,
    )
