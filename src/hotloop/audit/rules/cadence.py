"""What a step does beside training."""

from __future__ import annotations

import ast
import re
from typing import Final

from hotloop.audit.patterns import Rule, every_step
from hotloop.audit.program import Program
from hotloop.audit.regions import Region
from hotloop.source.nodes import chain, last_name

_EVALUATION: Final = re.compile(
    r"^(evaluate|validate|run_evaluation|run_validation|evaluate_model|validate_epoch|test_model)$"
)


def _evaluates(program: Program, region: Region, call: ast.Call) -> bool:
    """A function of the tree, named for evaluation, that loops over batches in eval mode."""
    target = program.target(region.module, call.func) if _EVALUATION.match(last_name(call.func)) else None
    if target is None:
        return False
    module, function = target
    evaluates = any(chain(one.func).endswith(".eval") for one in module.nodes(ast.Call, function))
    return evaluates and bool(module.nodes(ast.For, function))


RULES: Final[dict[str, Rule]] = {
    "cadence/checkpoint": every_step(
        "high",
        "torch.save",
        most=20,
        message="torch.save runs {when}: training waits for the copy from the device and for the disk.",
    ),
    "cadence/evaluation": every_step(
        "high", when=_evaluates, most=20, message="{}() evaluates over a whole loader {when}."
    ),
    "cadence/images": every_step(
        "medium",
        "matplotlib.pyplot.savefig",
        "cv2.imwrite",
        "torchvision.utils.save_image",
        "wandb.Image",
        methods=("add_image", "add_images", "add_figure", "savefig"),
        most=10,
        message="{} makes an image {when}: tens of milliseconds on the training thread, and a wait for the "
        "device.",
    ),
    "cadence/logging": every_step(
        "medium",
        "wandb.Histogram",
        methods=("add_histogram",),
        most=10,
        message="{} runs {when}: every value is copied to the host and sorted into bins on the training "
        "thread.",
    ),
}
