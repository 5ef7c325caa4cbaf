"""``host/viewer-in-loop`` in source: a window or a viewer is served at every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.audit.hit import hit, in_steps
from hotloop.audit.module import chain
from hotloop.audit.regions import Region
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "host/viewer-in-loop"
_ADVICE: Final = "Serve the viewer every few hundred steps, or from another process that reads checkpoints."
#: Calls that wait for a window's events.
_WINDOWS: Final = frozenset(
    ["matplotlib.pyplot.pause", "matplotlib.pyplot.draw", "matplotlib.pyplot.show", "cv2.waitKey",
     "cv2.imshow", "cv2.pollKey"]
)  # fmt: skip
#: What makes a viewer -> its methods that send or serve.
_VIEWERS: Final = {
    "visdom.Visdom": ("line", "lines", "image", "images", "heatmap", "scatter", "plot", "text", "histogram"),
    "viser.ViserServer": ("flush",),
    "nerfview.Viewer": ("update", "rerender"),
    "gsplat_viewer.GsplatViewer": ("update", "rerender"),
}


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where plt.pause, cv2.waitKey, a Visdom plot or a viewer's update runs at every step."""
    yield from in_steps(
        ID,
        tree,
        _serves,
        "medium",
        "{} runs {when}: drawing, sending and waiting for events happen on the training thread.",
        _ADVICE,
        most=10,
    )
    for region in tree.regions:
        polls = [c for c in region.calls if region.module.dotted(c.func).endswith("network_gui.try_connect")]
        if polls:
            yield hit(
                ID,
                region.module,
                polls[0],
                "low",
                "The live viewer is polled at every step, and while one is connected every step renders for "
                "it and waits for its messages.",
                _ADVICE,
            )


def _serves(region: Region, call: ast.Call) -> bool:
    name = region.module.dotted(call.func)
    if name in _WINDOWS:
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr in _VIEWERS.get(region.module.made_by(call.func.value), ()) and bool(
        chain(call.func)
    )
