"""The outermost forward of a module with parameters: where several live forms do their work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotloop.hooks.wrapping import compile_beside

if TYPE_CHECKING:
    from hotloop.remedy.live.form import Form

# ``begin`` gives the arguments to call with and what ``end`` needs, or None: as the script has it.
_CALL = """
def {name}(self, *args, **kwargs):
    if is_compiling() or inside[0] or depth[0] or not form.active or get_ident() != owner[0]:
        return original(self, *args, **kwargs)
    begun = begin(self, args, kwargs)
    if begun is None:
        return original(self, *args, **kwargs)
    depth[0] = 1
    try:
        args, kwargs, token = begun
        result = original(self, *args, **kwargs)
    finally:
        depth[0] = 0
        leave(begun)
    changed = end(token, result)
    return result if changed is None else changed
"""


def around_outermost(
    form: Form,
    begin: Callable[[Any, Any, Any], Any],
    end: Callable[[Any, Any], Any] = lambda token, result: None,
    leave: Callable[[Any], None] = lambda begun: None,
) -> None:
    """Wrap the outermost call of modules for a form; ``end`` may give another result.

    The wrapper lives on the class: the model pickles and copies as before.
    """
    probe = form.probe
    probe.hooks.patch(
        probe.torch.nn.Module,
        "__call__",
        lambda original: compile_beside(
            original,
            _CALL,
            form=form,
            inside=probe.inside,
            depth=[0],
            owner=probe.hooks.recorded,
            begin=form.guard(begin),
            end=form.guard(end),
            leave=form.guard(leave),
        ),
    )


def has_parameters(module: Any) -> bool:
    """Whether there is anything to train or to compute with: a criterion has nothing."""
    return next(module.parameters(), None) is not None
