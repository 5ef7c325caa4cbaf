"""What a step does beside training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.module import Module
from hotloop.audit.patterns import Hit, Rule, at, every_step
from hotloop.audit.program import Program, uses_cuda
from hotloop.audit.regions import Region
from hotloop.source.clocks import assigned_now, elapsed_name, has_elapsed, late_data_time, reads_clock
from hotloop.source.nodes import Function, chain, decorators, last_name

#: What waits for the device, or asks its own clock.
_WAITS: Final = re.compile(
    r"synchronize|elapsed_time|\bEvent\(|\.item\(|\.cpu\(|\.tolist\(|\.numpy\(|\bfloat\("
)
_WORK: Final = re.compile(r"fwd|forward|bwd|backward|compute|infer|gpu|model", re.IGNORECASE)
#: A call of a model, or one that computes gradients.
_WORKS: Final = re.compile(r"\b(self\.)?(model|net|network|generator|student)\(|\.backward\(")


def _misleading_metric(program: Program) -> Iterator[Hit]:
    """Timers around parts of a ``forward`` and around model calls, where nothing waits for CUDA; data times
    that start too late.
    """
    timed = any(_is_entered(module, one) for module in program.modules for one in module.nodes(ast.With))
    for module in program.modules if timed and program.mentions("cuda") else ():
        for function in _managers(module):
            yield at(
                module,
                function,
                "info",
                f"{function.name}() reads the host's clock around what it contains: a GPU only queues that "
                "there, and a part is charged for those that it had to wait for.",
            )
    for region in program.regions:
        if uses_cuda(region.module):
            yield from _around_calls(region)
    for module in program.modules:
        for late in (late_data_time(module, loop) for loop in module.nodes(ast.For)):
            if late is not None:
                yield at(
                    module,
                    late.node,
                    "info",
                    f"«{late.name}» starts its clock after the batch has arrived: {late.since} is set inside "
                    "the loop over the batches, so it cannot see how long a step waits for data.",
                    f"Set {late.since} at the end of the iteration before, before the loop asks for the "
                    "batch.",
                )


def _is_entered(module: Module, statement: ast.With) -> bool:
    """Whether a ``forward`` enters something that is not a library's."""
    function = module.function_of(statement)
    calls = [item.context_expr for item in statement.items if isinstance(item.context_expr, ast.Call)]
    named = function is not None and function.name == "forward"
    return named and any(not module.dotted(call.func) for call in calls)


def _managers(module: Module) -> Iterator[Function]:
    """Context managers that yield between two readings of the host's clock and wait for nothing."""
    for function in module.functions:
        if "contextmanager" not in decorators(function) or _WAITS.search(ast.unparse(function)):
            continue
        clocks = [call.lineno for call in module.nodes(ast.Call, function) if reads_clock(module, call)]
        yields = [node.lineno for node in module.nodes(ast.Yield, function)]
        if len(yields) == 1 and clocks and min(clocks) <= yields[0] < max(clocks):
            yield function


def _around_calls(region: Region) -> Iterator[Hit]:
    """``start = now()``, a call of the model, ``forward_time = now() - start``, and nothing that waits."""
    module = region.module
    for first, statement in enumerate(region.root.body):
        since = assigned_now(module, statement)
        after = region.root.body[first + 1 :] if since is not None else []
        ends = (
            place
            for place, other in enumerate(after)
            if _WORK.search(elapsed_name(other)) and has_elapsed(module, other, since)
        )
        end = next(ends, 0)
        text = "\n".join(map(ast.unparse, after[:end]))
        if _WORKS.search(text) and not _WAITS.search(text):
            yield at(
                module,
                after[end],
                "info",
                f"The time since {since} holds model work and nothing that waits for the device: on a GPU it "
                "is the time to queue it.",
            )


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
    "trend/misleading-metric": _misleading_metric,
}
