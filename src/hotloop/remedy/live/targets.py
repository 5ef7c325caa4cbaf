"""Live form of targets made once: what a function gave for a sample is kept, and put together again.

The function's code is exchanged, so that it does not matter who holds the function. What is given and
returned is taken apart along the first dimension; a sample is known by the bytes given for it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any, Final

from hotloop.remedy.live import closed
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.reads import GENERATORS, Reads, Unfit

#: Calls whose samples are made again one by one; once kept ones are used, every so many calls one sample, and
#: all of a batch every so many, and in the first of an epoch. Where its code shows that a function reads
#: nothing else, one sample of every call whose results are learnt (its others may decide still), and later a
#: batch once and a sample in the second, fourth, eighth, ... call.
_CHECKED: Final = 2
_AGAIN_EVERY: Final = 16
_WHOLE_EVERY: Final = 64
#: Arguments known by their identity: more are made anew for each call.
_MOST_OBJECTS: Final = 64
_CHANGED: Final = "it gave another result for the same sample: kept ones were used until then"
_DEPENDS: Final = "what it gives for a sample depends on the others of its batch"
#: Of this rank's share of the usable memory.
_ROOM_PART: Final = 0.25


class PrecomputedTargets(Form):
    """Keeps the results of the function that ``value`` names: ``FILE.py:FUNCTION``.

    Refused where it draws random numbers, changes what it is given, or a sample's result depends on the rest
    of its batch: the first batches are made again sample by sample to see. Now and then a sample, and more
    rarely a batch, is made although it is kept, ever less often where the code shows that the arguments
    decide; the first difference ends it.
    """

    def install(self) -> None:
        """Once the script trains, its functions are there."""
        self.probe.on_update(self.name, self._find)

    def _find(self) -> None:
        self.probe.off_update(self._find)
        found = functions(str(self.value or ""))
        if not found:
            self.say(f"no function {self.value!r} was found; write FILE.py:FUNCTION")
            return
        for function in found:
            if function.__code__.co_freevars:
                self.say(f"{function.__qualname__} holds variables of another function")
                continue
            self.say("no sample came a second time")
            code = function.__code__
            self.probe.hooks.at_undo(functools.partial(setattr, function, "__code__", code))
            function.__code__ = through(code, _Call(self, copied(function)).__call__)


class _Call:
    """Stands in for one function."""

    def __init__(self, form: PrecomputedTargets, original: FunctionType) -> None:
        self._form, self._original = form, original
        self._samples = Samples(form.torch, original, room())
        self._ask, self._recall = form.guard(self._samples.ask), form.guard(self._samples.recall)
        self._state, self._learn = form.guard(self._samples.state), form.guard(self._samples.learn)
        self._took = form.guard(form.took)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        samples, form = self._samples, self._form
        apart = form.probe.role != "main" or form.torch.compiler.is_compiling()
        if not form.active or samples.why or apart:
            return self._original(*args, **kwargs)
        asked = self._ask(args, kwargs)
        found = self._recall(asked) if asked is not None else None
        if found is not None:
            self._took()
            return found[0]
        before = self._state()
        result = self._original(*args, **kwargs)
        if asked is not None:
            self._learn(asked, before, result)
        if samples.why:
            form.say(samples.why)
        return result


@dataclass(kw_only=True)
class Asked:
    """One call: its tensors and other values in order, and how they were arranged."""

    leaves: list[Any]
    spec: Any
    whole: bool  # ``content`` is of all that they hold, not only of what torch does not count itself
    content: tuple[Any, ...]  # other where a value was changed in place
    around: bytes  # other where a setting was changed that the function reads
    keys: Sequence[bytes] = ()  # of the samples, once they were looked up


class Samples:
    """Results of a function, by the bytes of what it was given of each sample.

    ``why`` says why they are not kept, "" where they are. At most ``room`` bytes.
    """

    def __init__(self, torch: Any, function: Callable[..., Any], room: float) -> None:
        self.why = ""
        self._torch, self._function, self._room = torch, function, room
        # one call for all devices; older versions of torch have not got it
        self._casts = getattr(torch._C, "_is_any_autocast_enabled", torch.is_autocast_enabled)
        self._tree = importlib.import_module("torch.utils._pytree")
        self._known: dict[bytes, list[Any]] = {}
        self._spec: Any = None  # of results
        self._single = False  # the result is a tensor, and no container of them
        self._devices: list[Any] = []
        self._place = 0  # among the values of a call, of a tensor with one entry for each sample
        self._held: dict[int, Any] = {}  # values known by their identity: it must stay theirs
        self._reads = Reads(function) if isinstance(function, FunctionType) else None
        self._closed = closed.reached(function) if isinstance(function, FunctionType) else ()
        self._checked = self._learnt = self._hits = 0
        self._looked = -_AGAIN_EVERY  # the hit at which all of a batch was made again
        self._seen: float = math.inf  # samples asked for since an epoch began; inf: the next hit begins one

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked | None:
        """Take a call apart; None where it has no samples."""
        leaves, spec = self._apart(args, kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor)]
        if not any(tensor.dim() for tensor in tensors) or any(tensor.requires_grad for tensor in tensors):
            return None
        whole = self._checked < _CHECKED
        content = self._content(leaves, whole=whole)
        objects = [leaf for leaf in leaves if not isinstance(leaf, self._torch.Tensor)]
        around = repr([] if self._reads is None else list(self._reads.settings(objects))).encode()
        return Asked(leaves=leaves, spec=spec, whole=whole, content=content, around=around)

    def _apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """What a call is given, and how it is arranged: mostly a number of values, one after the other."""
        if not kwargs and all(
            type(one) is self._torch.Tensor or isinstance(one, closed.PLAIN) for one in args
        ):
            return list(args), len(args)
        leaves, spec = self._tree.tree_flatten((args, kwargs))
        return leaves, spec

    def _together(self, leaves: list[Any], spec: Any) -> tuple[Any, dict[str, Any]]:
        if isinstance(spec, int):
            return leaves, {}
        args, kwargs = self._tree.tree_unflatten(leaves, spec)
        return args, kwargs

    def recall(self, asked: Asked) -> tuple[Any] | None:
        """The results for a batch whose samples are all known; None also where it is time to look again."""
        place = self._place
        if self._checked < _CHECKED or place >= len(asked.leaves) or not _dim(asked.leaves[place]):
            return None
        asked.keys = self._keys(asked, len(asked.leaves[place]))
        kept = [self._known.get(key) for key in asked.keys]
        if not kept or any(one is None for one in kept):
            self._seen = math.inf
            return None
        self._hits += 1
        if self._is_shown():
            whole, one = self._hits == 1, self._hits & (self._hits - 1) == 0
        else:
            whole, one = self._is_time(len(kept)), self._hits % _AGAIN_EVERY == 0
        if whole or (one and not self._holds(asked, kept)):
            return None
        columns = zip(*kept, strict=True)
        results = [
            self._torch.stack(one).to(device) for one, device in zip(columns, self._devices, strict=True)
        ]
        return (results[0] if self._single else self._tree.tree_unflatten(results, self._spec),)

    def _is_shown(self) -> bool:
        """Whether the function reads nothing but what a call is known by, as its code shows."""
        return bool(self._closed) and not self._held

    def _is_time(self, count: int) -> bool:
        """Whether all of a batch is to be made again. An epoch ends when as many were asked for as kept."""
        self._seen += count
        begins = self._seen > len(self._known)
        if begins:
            self._seen = count
        if self._hits - self._looked < (_AGAIN_EVERY if begins else _WHOLE_EVERY):
            return False
        self._looked = self._hits
        return True

    def _holds(self, asked: Asked, kept: Sequence[Any]) -> bool:
        """Whether one of the samples of a batch, another each time, is made as it was kept."""
        number, before = self._hits // _AGAIN_EVERY % len(kept), self.state()
        try:
            found = self._alone(asked, number, len(kept))
            same = self._same([leaf[None] for leaf in kept[number]], found)
            if not same or before != self.state():
                raise Unfit(_CHANGED if not same else "it draws random numbers")
        except Unfit as unfit:
            self.why = str(unfit)
            self._known.clear()
        return not self.why

    def state(self) -> list[Any]:
        """Of the random number generators, on which results must not depend."""
        return random_states(self._torch)

    def learn(self, asked: Asked, before: list[Any], result: Any) -> None:
        """Keep what a call gave for each of its samples, or find that it cannot be kept."""
        try:
            self._learn(asked, before, result)
        except Unfit as unfit:
            self.why = str(unfit)
            self._known.clear()

    def _learn(self, asked: Asked, before: list[Any], result: Any) -> None:
        if before != self.state():
            raise Unfit("it draws random numbers")
        if asked.content != self._content(asked.leaves, whole=asked.whole):
            raise Unfit("it changes what it is given")
        if any(type(value).__name__ in GENERATORS for value in self._around(asked)):
            raise Unfit("it may draw random numbers from a generator of its own")
        results, spec = self._tree.tree_flatten(result)
        count = self._count(asked, results)
        if self._spec is not None and spec != self._spec:
            raise Unfit("its results are of several forms")
        self._spec, self._devices = spec, [leaf.device for leaf in results]
        self._single = isinstance(result, self._torch.Tensor)
        keys = asked.keys if len(asked.keys) == count else self._keys(asked, count)
        if len(self._held) > _MOST_OBJECTS:
            raise Unfit("it is given other objects in each call")
        self._learnt += 1
        if self._checked < _CHECKED:
            self._checked += 1
            self._check(asked, results, range(count))
        elif self._is_shown():
            self._check(asked, results, [self._learnt % count])
        for number, key in enumerate(keys):
            now = [leaf[number] for leaf in results]
            kept = self._known.get(key)
            if kept is not None:
                if not self._same(kept, now):
                    raise Unfit(_CHANGED)
            elif self._room > 0:
                self._known[key] = [leaf.to("cpu", copy=True) for leaf in now]
                self._room -= len(key) + sum(leaf.nbytes for leaf in now)
        if self._room <= 0 and not self._hits:
            raise Unfit("the memory for its results was full before a sample came a second time")

    def _count(self, asked: Asked, results: Sequence[Any]) -> int:
        """Samples of a batch. Raises Unfit."""
        tensor = self._torch.Tensor
        if not results or not all(isinstance(leaf, tensor) and leaf.dim() for leaf in results):
            raise Unfit("it gives something other than tensors of samples")
        if any(leaf.requires_grad or not leaf.is_contiguous() or leaf.is_sparse for leaf in results):
            raise Unfit("its results are not plain tensors without a gradient")
        count = len(results[0])
        places = [place for place, leaf in enumerate(asked.leaves) if self._is_batched(leaf, count)]
        if any(len(leaf) != count for leaf in results) or not places:
            raise Unfit("its results are not one for each sample")
        self._place = places[0]
        return count

    def _is_batched(self, leaf: Any, count: int) -> bool:
        return _dim(leaf) > 0 and len(leaf) == count

    def _content(self, leaves: Sequence[Any], *, whole: bool) -> tuple[Any, ...]:
        """By which a change in place is seen: torch counts a tensor's, but not what numpy does to it."""
        found: list[Any] = []
        for leaf in leaves:
            if isinstance(leaf, self._torch.Tensor):
                counted = not leaf.is_inference()
                found.append(leaf._version if counted else 0)
                if whole or not counted:
                    found.append(hashlib.blake2b(self._bytes(leaf)).digest())
            elif _is_array(leaf):
                found.append(hashlib.blake2b(leaf.tobytes()).digest())
        return tuple(found)

    def _check(self, asked: Asked, results: Sequence[Any], numbers: Sequence[int]) -> None:
        """Make the results of these samples alone. Raises Unfit where they are others."""
        before = self.state()
        for number in numbers:
            found = self._alone(asked, number, len(results[0]))
            wanted = [leaf[number : number + 1] for leaf in results]
            if before != self.state() or not self._same(wanted, found):
                raise Unfit(_DEPENDS)

    def _alone(self, asked: Asked, number: int, count: int) -> list[Any]:
        """The results for one sample of a batch. Raises Unfit."""
        alone = [
            leaf[number : number + 1] if self._is_batched(leaf, count) else leaf for leaf in asked.leaves
        ]
        args, kwargs = self._together(alone, asked.spec)
        try:
            found, spec = self._tree.tree_flatten(self._function(*args, **kwargs))
        except Exception as error:
            raise Unfit(f"it cannot be called for one sample: {type(error).__name__}") from None
        if spec != self._spec:
            raise Unfit(_DEPENDS)
        return list(found)

    def _same(self, some: Sequence[Any], others: Sequence[Any]) -> bool:
        pairs = zip(some, others, strict=True)
        return all(
            one.shape == other.shape and self._bytes(one) == self._bytes(other) for one, other in pairs
        )

    def _bytes(self, tensor: Any) -> bytes:
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        data: bytes = whole.view(self._torch.uint8).numpy().tobytes()
        return data

    def _keys(self, asked: Asked, count: int) -> list[bytes]:
        """One for each sample: what is its own, and what the whole call was given."""
        around = self._around(asked)
        plain = [value for value in around if isinstance(value, closed.PLAIN)]
        named = (self._torch.dtype, self._torch.device, self._torch.Size, type, BuiltinFunctionType)
        plain += [repr(value) for value in around if isinstance(value, named)]
        plain += [id(value.__code__) for value in around if type(value) is FunctionType]
        plain += [self._torch.get_default_dtype(), self._casts()]
        whole = hashlib.blake2b(repr((asked.spec, plain)).encode() + asked.around, digest_size=16)
        rows = [hashlib.blake2b(digest_size=16) for _ in range(count)]
        for leaf in asked.leaves:
            if self._is_batched(leaf, count):
                data, each = self._bytes(leaf), leaf[0].nbytes
                whole.update(f"{leaf.dtype} {tuple(leaf.shape[1:])} {leaf.device}".encode())
                for number, digest in enumerate(rows):
                    digest.update(data[number * each : (number + 1) * each])
            elif isinstance(leaf, self._torch.Tensor):
                whole.update(f"{leaf.dtype} {tuple(leaf.shape)} {leaf.device}".encode() + self._bytes(leaf))
            else:
                whole.update(self._named(leaf).encode())
        common = whole.digest()
        return [common + digest.digest() for digest in rows]

    def _around(self, asked: Asked) -> list[Any]:
        """What the function may read besides: the module's values that it names, attributes of objects."""
        function = self._function
        read = closed.named(self._closed or ([function] if isinstance(function, FunctionType) else []))
        objects = [leaf for leaf in asked.leaves if not isinstance(leaf, self._torch.Tensor)]
        held = [value for leaf in objects for value in getattr(leaf, "__dict__", {}).values()]
        return [*read, *objects, *held]

    def _named(self, leaf: Any) -> str:
        torch = self._torch
        if isinstance(leaf, (*closed.PLAIN, torch.device, torch.dtype, torch.Size)):
            return f"{type(leaf).__name__} {leaf!r}"
        if _is_array(leaf):
            return f"{leaf.dtype} {leaf.shape} {hashlib.blake2b(leaf.tobytes()).hexdigest()}"
        self._held[id(leaf)] = leaf
        return f"object {id(leaf)}"


def _is_array(leaf: Any) -> bool:
    """Whether something is numpy's, and its bytes are all there is to it."""
    return type(leaf).__module__ == "numpy" and hasattr(leaf, "tobytes") and not leaf.dtype.hasobject


def _dim(leaf: Any) -> int:
    """Dimensions of a tensor, 0 of anything else."""
    return leaf.dim() if hasattr(leaf, "_version") and hasattr(leaf, "dim") else 0


def random_states(torch: Any) -> list[Any]:
    """Of the random number generators of Python, torch, its devices and numpy."""
    return own_random_states() + torch_random_states(torch)


def own_random_states() -> list[Any]:
    """Of the generators of Python and numpy."""
    found: list[Any] = [random.getstate()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *place = numpy.random.get_state()
        found += [kind, keys.tobytes(), *place]
    return found


def torch_random_states(torch: Any) -> list[Any]:
    """Of the generators of torch and its devices."""
    found: list[Any] = [torch.get_rng_state().numpy().tobytes()]
    if torch.cuda.is_initialized():
        found += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return found


def functions(named: str) -> list[FunctionType]:
    """Functions of loaded modules that ``FILE.py:FUNCTION`` names; decorated ones as they were written."""
    file, _, name = named.rpartition(":")
    found: dict[int, FunctionType] = {}
    for module in list(sys.modules.values()):
        if not file or Path(getattr(module, "__file__", None) or "").name != Path(file).name:
            continue
        try:
            one: Any = functools.reduce(getattr, name.split("."), module)
        except AttributeError:
            continue
        while hasattr(one, "__wrapped__"):
            one = one.__wrapped__
        one = getattr(one, "__func__", one)
        if isinstance(one, FunctionType):
            found[id(one)] = one
    return list(found.values())


def copied(function: FunctionType) -> FunctionType:
    """Another function that does the same, whatever becomes of this one's code."""
    other = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    other.__kwdefaults__ = function.__kwdefaults__
    return other


def through(code: CodeType, call: Callable[..., Any]) -> CodeType:
    """Code that hands its arguments to ``call(args, kwargs)``, under the name of ``code``."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        call: Any = 0.5  # its place among the constants
        return call(args, kwargs)

    made = stand_in.__code__
    constants = tuple(call if one == 0.5 else one for one in made.co_consts)
    return made.replace(co_consts=constants, co_name=code.co_name, co_qualname=code.co_qualname)


def room() -> float:
    """Bytes that results may take."""
    budget = importlib.import_module("hotloop.feed.budget")
    return float(_ROOM_PART * budget.usable_memory_bytes() / budget.local_world_size())
