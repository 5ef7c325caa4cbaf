"""Live forms that change the settings of the DataLoader that feeds the training, from its next ``iter()``.

Most settings of a built DataLoader can be set; the frozen ones through ``__dict__``. Nothing checks them
then, so what goes together is put together here.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import Any

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.probe import Probe
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.trial import why_not
from hotloop.state.identity import Known

_ITER = """
def {name}(self):
    if is_compiling():
        return original(self)
    return iterate(self, original)
"""

#: ``make(loader, original)``: an iterator in place of ``original(loader)``.
Make = Callable[[Any, Any], Any]

#: An iterator takes these when it is made; then the script, which may look at them, has its own back.
_LENT = ("dataset", "collate_fn", "worker_init_fn", "generator")


class Changes:
    """What the loader forms want of each training loader, put in force where ``iter()`` is called."""

    def __init__(self, probe: Probe, module: Any) -> None:
        self._probe = probe
        self._module = module
        self.forms: list[LoaderForm] = []
        self.make: Make | None = None

    def iterate(self, loader: Any, original: Any) -> Any:
        """``iter(loader)`` with the changes, or without them where they fail."""
        changed = self._probe.hooks.guard("remedies of loaders", self._change)(loader)
        if not changed:
            return original(loader)
        before, forms = changed
        generator = before.get("generator", loader.generator) or self._probe.torch.default_generator
        state = generator.get_state()
        # torch warns about more workers than cores: not the script's doing.
        loader.__dict__["check_worker_number_rationality"] = lambda: None
        try:
            iterator = self.make(loader, original) if self.make else original(loader)
        except Exception as error:  # what the script would not have seen without us
            loader.__dict__.update(before)
            generator.set_state(state)
            for form in forms:
                form.fail(f"failed, left as it was: {type(error).__name__}: {error}")
            return original(loader)
        finally:
            loader.__dict__.pop("check_worker_number_rationality", None)
        loader.__dict__.update({name: before[name] for name in _LENT if name in before})
        for form in forms:
            form.took()
        return iterator

    def _change(self, loader: Any) -> tuple[dict[str, Any], list[LoaderForm]] | None:
        """Change the loader; what it had, and the forms that had a part in it. None: leave it alone."""
        if self._probe.role == "worker":
            return None
        trains = self._trains(loader)
        forms = [form for form in self.forms if form.active and not form.failed]
        wanted: dict[str, Any] = {}
        taking = []
        for form in forms:
            asked = form.changes if trains else form.elsewhere
            changes = form.guard(asked)(loader, {**loader.__dict__, **wanted})
            if changes is not None:
                taking.append(form)
                wanted.update(changes)
        if not taking:
            return None
        site = self._probe.loaders.site_of(loader)
        for form in taking if trains else ():
            form.sites.add(site)
        wanted = consistent({**loader.__dict__, **wanted}, wanted)
        why = why_not(self._module, self._probe.torch, loader, wanted)
        if why:
            for form in taking:
                if isinstance(form, NumWorkers):
                    form.fail(f"left as it was: {why}")
            return self._change(loader)  # the others may still have their part
        before = {name: loader.__dict__.get(name) for name in wanted}
        if wanted.get("num_workers", loader.num_workers) != loader.num_workers and before_is_kept(loader):
            loader.__dict__["_iterator"] = None
        settings = {name: value for name, value in wanted.items() if name not in _LENT}
        loader.__dict__.update(settings)
        if any(before[name] is not value for name, value in settings.items()):
            self._probe.loaders.changed(loader, tuple(settings))
        loader.__dict__.update(wanted)
        return before, taking

    def _trains(self, loader: Any) -> bool:
        """Whether this iteration is of training: gradients are on, and where any loader shuffles, it does."""
        if not self._probe.torch.is_grad_enabled():
            return False
        known = [other for other, _ in self._probe.loaders.known()]
        return self._shuffles(loader) or not any(self._shuffles(other) for other in known)

    def _shuffles(self, loader: Any) -> bool:
        sampler = getattr(loader, "sampler", None)
        batches = getattr(loader, "batch_sampler", None)
        own = batches is not None and type(batches).__module__ != "torch.utils.data.sampler"
        return own or type(sampler).__name__ not in ("SequentialSampler", "_InfiniteConstantSampler")


def before_is_kept(loader: Any) -> bool:
    """Whether persistent workers of another number are still there."""
    return loader.__dict__.get("_iterator") is not None


def consistent(settings: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """``wanted`` with what has to go along: DataLoader checks it only when it is built."""
    if settings["num_workers"] == 0:
        rest = {"prefetch_factor": None, "persistent_workers": False, "timeout": 0}
        rest["_DataLoader__multiprocessing_context"] = None
        return {**wanted, **rest}
    return wanted if settings.get("prefetch_factor") else {**wanted, "prefetch_factor": 2}


_changes: Changes | None = None


def changes_of(probe: Probe, module: Any) -> Changes:
    """The one patch of ``DataLoader.__iter__`` that all loader forms share."""
    global _changes
    if _changes is None:
        _changes = Changes(probe, module)
        iterate = _changes.iterate
        probe.hooks.patch(
            module.DataLoader,
            "__iter__",
            lambda original: compile_beside(original, _ITER, iterate=iterate),
        )
    return _changes


class LoaderForm(Form):
    """A form that changes settings: ``changes`` gives them for a loader, None where none are to change."""

    failed = False
    switchable = True  # by another iterator beside the script's

    def __init__(self, context: Probe, value: Any) -> None:
        super().__init__(context, value)
        self.sites: set[int] = set()  # where the training loaders that it changed were built

    def install(self) -> None:
        """Join the others at ``DataLoader.__iter__``."""
        self.probe.hooks.on_import("torch.utils.data.dataloader", self._join, self.name)

    def _join(self, module: Any) -> None:
        changes_of(self.probe, module).forms.append(self)

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """New values by name. ``settings`` is the loader's ``__dict__`` as the other forms left it."""
        raise NotImplementedError

    def elsewhere(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The same for a loader that does not train: it stays as it is."""
        return None

    def status(self) -> str:
        """Also that it changed several loaders: a patch changes those that had the same value."""
        words = super().status()
        if words != "in effect" or len(self.sites) < 2:
            return words
        return f"in effect, in the loaders of {len(self.sites)} places"

    def fail(self, why: str) -> None:
        """It broke the loader: never again."""
        self.failed = True
        self.say(why)
        self.write()


class NumWorkers(LoaderForm):
    """Another number of workers; none once the loop was seen to write to the dataset."""

    def __init__(self, context: Probe, value: Any) -> None:
        super().__init__(context, value)
        self._asked: Known[int] = Known()  # the workers that loaders had

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The number asked for, else one per core less one for the loop; a stream is cut by its workers."""
        if _is_stream(self, loader):
            return None
        had = self._asked.get(loader)
        if had is None:
            had = loader.num_workers
            self._asked.put(loader, had)
        if names := self.probe.loaders.written(loader) if not had else ():
            seen = f"the loop wrote {', '.join(names)} of the dataset, which workers did not see"
            self.fail(f"left as it was from the next pass on: {seen}")
            return {"num_workers": had}
        wanted = self.value if self.value is not None else default_workers()
        return {"num_workers": wanted}


class NoWorkers(LoaderForm):
    """No workers. Where they stayed, epochs after the first drew no seed for them: none is drawn then."""

    def __init__(self, context: Probe, value: Any) -> None:
        super().__init__(context, value)
        self._stayed: weakref.WeakSet[Any] = weakref.WeakSet()

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """0."""
        if _is_stream(self, loader):
            return None
        again = loader in self._stayed or before_is_kept(loader)
        if loader.num_workers and loader.persistent_workers:
            self._stayed.add(loader)
        return {"num_workers": 0} | ({"generator": self.torch.Generator()} if again else {})


class PrefetchFactor(LoaderForm):
    """More batches ahead; only where there are workers."""

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The number asked for."""
        if settings["num_workers"] == 0:
            self.say("the loader has no workers: nothing runs ahead")
            return None
        return {"prefetch_factor": self.value}


class PinMemory(LoaderForm):
    """Page-locked batches; only where there is an accelerator."""

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """On."""
        accelerator = getattr(self.torch, "accelerator", None)
        if not (accelerator.is_available() if accelerator is not None else self.torch.cuda.is_available()):
            self.say("torch finds no accelerator: there is nothing to copy to")
            return None
        return {"pin_memory": True}


class BatchSize(LoaderForm):
    """Another number of samples per batch, from the script's own sampler."""

    switchable = False  # a step is then another number of samples

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """The size, and torch's batch sampler of that size around the same sampler."""
        batches = settings.get("batch_sampler")
        if batches is None or type(batches).__module__ != "torch.utils.data.sampler":
            self.say("the script makes its batches itself")
            return None
        if batches.batch_size == self.value:
            return {}
        made = type(batches)(batches.sampler, self.value, batches.drop_last)
        return {"batch_size": self.value, "batch_sampler": made}


class OutOfOrder(LoaderForm):
    """Batches as they become ready."""

    switchable = False

    def changes(self, loader: Any, settings: dict[str, Any]) -> dict[str, Any] | None:
        """Off, where there are several workers and torch knows the setting."""
        if settings["num_workers"] < 2:
            self.say("the loader has fewer than two workers")
            return None
        return {"in_order": False}


def _is_stream(form: LoaderForm, loader: Any) -> bool:
    if loader._dataset_kind == 0:
        return False
    form.say("an iterable dataset: its workers decide what is read, and in which order")
    return True


def default_workers() -> int:
    """One per core this process may use, shared with the other ranks of the node, less one for the loop."""
    return max(1, int(importlib.import_module("hotloop.feed.budget").usable_cores()) - 1)
