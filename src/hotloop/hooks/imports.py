"""Acting right after a module was imported, before its importer goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]

#: The interpreter removes frames of this file from the tracebacks of failing imports, when the function is
#: called like this one, and ``warnings.warn`` does not count them as levels.
IMPORT_FILE = "<frozen importlib._bootstrap>"
_IMPORT_NAME = "_call_with_frames_removed"


class AfterImport:
    """A ``sys.meta_path`` finder that runs callbacks after the modules it is told about were executed."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callback]] = {}

    def add(self, module: str, callback: Callback) -> None:
        """Call ``callback(module)`` after the module's import; at once where it is imported already."""
        present = sys.modules.get(module)
        spec = getattr(present, "__spec__", None)
        if present is not None and not getattr(spec, "_initializing", False):
            callback(present)
            return
        self._callbacks.setdefault(module, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Forget every callback and leave ``sys.meta_path``."""
        self._callbacks.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec the other finders give, its loader told to call back; None for every other module."""
        if name not in self._callbacks:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                self._attach(name, spec)
                return spec
        return None

    def _attach(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def run(module: ModuleType) -> None:
            # The loader gets its own method back first: the module's __spec__.loader is what it always was.
            try:
                del loader.exec_module
            except AttributeError:
                pass
            execute(module)
            for callback in self._callbacks.pop(name, ()):
                callback(module)

        # Under a name that the interpreter leaves out of import tracebacks.
        code = run.__code__.replace(co_filename=IMPORT_FILE, co_name=_IMPORT_NAME)
        try:
            loader.exec_module = FunctionType(code, globals(), _IMPORT_NAME, None, run.__closure__)
        except AttributeError:  # a loader that takes no attributes: go unnoticed rather than break it
            return
