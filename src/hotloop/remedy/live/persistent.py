"""Workers that stay, with the batches and losses that fresh workers would have given.

torch's own ``persistent_workers`` changes both from the second epoch on: an iterator draws a seed for its
workers when it is made, but none when it is used again. Here each new epoch draws it, and ships it to the
workers with the message that begins the epoch; they seed themselves as fresh ones do, and call
``worker_init_fn`` again.
"""

from __future__ import annotations

import inspect
import random
import sys
import weakref
from types import FrameType
from typing import Any

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.observers.loader_facts import start_method
from hotloop.remedy.live.loader import LoaderForm, changes_of
from hotloop.state.snapshot import EXACT, snapshot

_RESET = """
def {name}(self, loader, first_iter=False):
    if not first_iter:
        draw(self, loader)
    return original(self, loader, first_iter)
"""

#: The seed of the epoch that begins; set while an iterator is reset.
_seed: int | None = None


def resumed(shared_seed: Any, base_seed: int | None) -> Any:
    """The message as it arrives. In a worker it seeds; the main process gets it back as an answer."""
    worker = sys.modules["torch.utils.data._utils.worker"]
    info = worker._worker_info
    if info is not None and base_seed is not None:
        _seed_worker(worker, info, base_seed)
    return worker._ResumeIteration(shared_seed)


def _seed_worker(worker: Any, info: Any, base_seed: int) -> None:
    """What ``_worker_loop`` of torch 2.13 does at its start."""
    seed = base_seed + info.id
    random.seed(seed)
    sys.modules["torch"].manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if worker.HAS_NUMPY and numpy is not None:
        numpy.random.seed(worker._generate_state(base_seed, info.id))
    object.__setattr__(info, "seed", seed)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and "init_fn" not in frame.f_locals:
        frame = frame.f_back
    init = frame.f_locals["init_fn"] if frame is not None else None
    if init is not None:
        init(info.id)


class PersistentWorkers(LoaderForm):
    """Keeps workers of map-style loaders between epochs."""

    switchable = False  # it makes no difference within an epoch
    _anew = 0  # epochs that got fresh workers

    def _join(self, module: Any) -> None:
        # Before the settings change: an iterator that is reset finds the patch.
        many, worker = module._MultiProcessingDataLoaderIter, sys.modules["torch.utils.data._utils.worker"]
        hooks = self.probe.hooks
        if not _is_known(worker):
            self.say("this torch seeds its workers in a way that is not known here")
            return
        hooks.patch(many, "_reset", lambda original: compile_beside(original, _RESET, draw=self._draw))
        hooks.patch(worker, "_ResumeIteration", _resume_class)
        self._states: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        super()._join(module)
        changes_of(self.probe, module).forms.sort(key=lambda form: isinstance(form, PersistentWorkers))

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """On, where fresh workers would see nothing that kept ones do not."""
        if not settings["num_workers"]:
            self.say("the loader has no workers to keep")
            return None
        if loader.persistent_workers and loader not in self._states:
            self.say("the script keeps its workers already")
            return None
        if start_method(loader) != "fork":
            self.say("workers that are not forked are left alone")
            return None
        if hasattr(loader.dataset, "__iter__") and not hasattr(loader.dataset, "__getitem__"):
            self.say("an iterable dataset: what it kept from the last epoch cannot be told from here")
            return None
        seen = snapshot((loader.dataset, loader.collate_fn, loader.worker_init_fn), EXACT)
        if self._states.get(loader, seen) != seen:
            self._anew += 1
            loader.__dict__["_iterator"] = None  # e.g. dataset.set_epoch(): only fresh workers see it
        self._states[loader] = seen
        return {"persistent_workers": True}

    def status(self) -> str:
        """Also how often the workers did not stay."""
        words = super().status()
        if words != "in effect" or not self._anew:
            return words
        return f"in effect, with fresh workers before {self._anew} epochs: the dataset had changed"

    def _draw(self, iterator: Any, loader: Any) -> None:
        """Draw what a new iterator draws, in its order: the sampler's (twice), the workers' seed."""
        global _seed
        _seed = None
        if loader not in self._states:
            return
        iter(iterator._index_sampler)
        torch = self.torch
        _seed = torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item()
        iterator._base_seed = _seed


def _is_known(worker: Any) -> bool:
    """Whether workers are seeded by the names used here: an error would come up in the worker."""
    loop = inspect.unwrap(worker._worker_loop)
    names = ("HAS_NUMPY", "_generate_state", "_ResumeIteration", "_worker_info")
    return all(hasattr(worker, name) for name in names) and "init_fn" in loop.__code__.co_varnames


def _resume_class(original: Any) -> Any:
    class Resume(original):  # type: ignore[misc]  # isinstance() in both processes still holds
        def __reduce__(self) -> tuple[Any, tuple[Any, int | None]]:
            return resumed, (self.seed, _seed)

    Resume.__name__ = Resume.__qualname__ = original.__name__
    Resume.__module__ = original.__module__
    return Resume
