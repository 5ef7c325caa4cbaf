"""Wrappers that run in every step: compiled (``_hooks.c``), only their begin and end, or written out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from hotloop import fast
from hotloop.probe.places import with_site, with_text

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Sets ``start``: the time, 0 in a thread that is not recorded.
_BEGIN_WRITTEN_OUT: Final = "start = now() if get_ident() == owner[0] else 0"
_GUARDED: Final = """
stop = now()
try:
    {body}
except Exception as error:
    failed(switch, error)
"""


def with_ending(source: str, compiled: str, written_out: str) -> str:
    """The source of a wrapper: its compiled end called, or that end itself, where it says ``{end}``."""
    hooks = fast.Hook is not None
    begin = f"start = {compiled.partition('(')[0]}()" if hooks else _BEGIN_WRITTEN_OUT
    source = source.replace("{begin}", begin)
    return with_text(
        source, "{end}", compiled if hooks else with_site(with_text(_GUARDED, "{body}", written_out))
    )


def ending(probe: Probe, observer: str, what: str, kind: int, *given: Any, original: Any = None) -> Any:
    """What ``_hooks.c`` calls ``what``: an end, or with ``original`` the whole wrapper; None where it is not
    compiled.
    """
    if fast.Hook is None:
        return None
    failed, switch = probe.hooks.failed, probe.hooks.switch(observer)
    hook = fast.Hook(what, kind, probe.writer.row, probe.site, failed, switch, probe.count, given, original)
    return hook if original is None else functools.update_wrapper(hook, original)
