"""DataLoaders as they are built: their numbers, the places that build them, and their ``loader`` notes."""

from __future__ import annotations

from types import FrameType
from typing import Any

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.observers.loader_facts import loader_facts
from hotloop.probe.probe import Probe
from hotloop.state.identity import Known
from hotloop.torch_facts import LOADER_POSITIONS


class Construction:
    """The loaders that were built."""

    def __init__(self, probe: Probe, module: Any) -> None:
        self._probe = probe
        self._module = module
        self._loaders: Known[int] = Known()
        #: where, called from where, by which function of a package, given what
        self._built: dict[int, tuple[int, int, str, list[str]]] = {}
        self._num_loaders = 0
        #: Of datasets, as torch's samplers were told last.
        self._lengths: Known[int] = Known()

    def told_length(self, one: Any) -> int:
        """``len`` of torch's module of samplers."""
        length = len(one)
        self._lengths.put(one, length)
        return length

    def length(self, one: Any) -> int:
        """The length that torch's sampler was told, for it may be dear; asked for where it was not yet."""
        known = self._lengths.get(one)
        return self.told_length(one) if known is None else known

    def forget(self) -> None:
        """Ids begin at 1 again."""
        self._loaders.clear()
        self._built.clear()
        self._num_loaders = 0

    def site_of(self, loader: Any) -> int:
        """The site where this loader was built, 0 unknown."""
        return self._built.get(self._loaders.get(loader) or 0, (0,))[0]

    def known(self) -> list[tuple[Any, int]]:
        """The loaders that live, with their ids."""
        return self._loaders.values()

    def changed(self, loader: Any, names: tuple[str, ...]) -> None:
        """A remedy changed these settings: the loader is noted again under its id."""
        number = self._loaders.get(loader)
        if number is None:
            return
        site, via, by, given = self._built[number]
        given = [*given, *(name for name in names if name not in given)]
        self._write_loader(loader, number, site, via, by, given)

    def begin_init(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Where a loader is built: the frame that made it, not the ``__init__`` of its own subclass."""
        if self._probe.role == "worker":
            return None
        made = self._constructed_at(frame, args[0])
        places = self._probe.places
        built = self._probe.site(made), places.site_by_stack(made), places.called(made)
        return args[0], args[1:], kwargs, *built

    def end_init(self, token: Any, start: int, stop: int, result: Any) -> None:
        """Note a loader that came to be."""
        if result is not RAISED:
            self._note_loader(*token)

    def _constructed_at(self, frame: FrameType | None, loader: Any) -> FrameType | None:
        while frame is not None:  # also a wrapper of it, as Lightning's is
            first = frame.f_code.co_varnames[:1]
            if not first or frame.f_locals.get(first[0]) is not loader:
                break
            frame = frame.f_back
        return frame

    def _note_loader(
        self, loader: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: int, via: int, by: str
    ) -> int:
        self._num_loaders += 1
        self._loaders.put(loader, self._num_loaders)
        given = [*LOADER_POSITIONS[: len(args)], *kwargs]
        self._write_loader(loader, self._num_loaders, site, via, by, given)
        return self._num_loaders

    def _write_loader(self, loader: Any, number: int, site: int, via: int, by: str, given: list[str]) -> None:
        self._built[number] = site, via, by, given
        facts = loader_facts(loader, self._module, self.length)
        self._probe.note("loader", id=number, where=site, via=via, by=by, given=given, **facts)
