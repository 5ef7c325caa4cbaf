"""A transform of every sample, done once for the whole array: the same values, without the price per sample.

A scaler called in ``__getitem__`` costs tens of microseconds of Python a sample, in every epoch. Applied to
thousands of samples at once it costs what the arithmetic costs. That is only right where the transform treats
samples independently; this is checked on samples of every chunk, never assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from hotloop import units
from hotloop.feed.budget import usable_memory_bytes
from hotloop.feed.errors import FeedError
from hotloop.feed.layout import tensor_bytes

#: Samples compared with their own transform, at least (or all, where there are fewer), besides the first and
#: last of every chunk.
NUM_CHECKED: Final = 32
_REWRITE: Final = "write it for one more dimension in front, or keep it in __getitem__"


class NotVectorizable(FeedError, ValueError):  # noqa: N818 - the finding itself
    """Transforming many samples at once would not give what transforming each gives; the message says why."""


def pretransform(
    data: Any,
    transform: Any,
    *,
    dtype: Any = None,
    out: Any = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    chunk_bytes: int = 32 << 20,
) -> Any:
    """Every sample of ``data``, transformed: an array or tensor whose first dimension counts the samples.

    Args:
        data: an array or tensor (numpy, memory-mapped, ``h5py``) with the samples along its first dimension,
            or a map-style dataset of arrays, tensors or numbers of one shape.
        transform: what ``__getitem__`` would have called on a sample; it is given one more dimension in
            front. What is not callable but has a ``transform`` method (scikit-learn's scalers) is given rows:
            a sample of one dimension is a row, a sample of two is its rows.
        dtype: of the result: numpy's make an array, torch's a tensor; default: what the transform gives.
        out: array, tensor or memory map to fill, for results larger than memory.
        rtol, atol: how far a value may be from the one computed sample by sample, as ``numpy.isclose`` takes
            them. Zero means bit for bit. Matrix products (``PCA``) round by the number of rows.
        chunk_bytes: samples are taken in chunks of about so many bytes; ``out`` and a few chunks are held.

    The input is never changed, whatever the transform does in place. Compared with their own transform are
    the first and last sample of every chunk and 32 samples over the whole.

    Raises:
        NotVectorizable: the transform mixes samples, is random, changes the number of samples or fails on
            several at once; the samples differ in shape; or a sample reads differently a second time.
        TypeError: the samples or the results are no arrays.
        FeedError: the result does not fit in memory.
        ValueError: there are no samples, or ``out`` has another shape than the result.
    """
    num_samples = len(data)
    if not num_samples:
        raise ValueError("data has no samples")
    apply = _Apply(transform, getattr(out, "dtype", None) if dtype is None else dtype)
    per_chunk = max(1, chunk_bytes // max(1, _sample(data, 0).nbytes))
    spread = {round(i * (num_samples - 1) / (NUM_CHECKED - 1)) for i in range(NUM_CHECKED)}
    with torch.no_grad():
        for start in range(0, num_samples, per_chunk):
            stop = min(start + per_chunk, num_samples)
            chunk = _chunk(data, start, stop)
            checked = sorted({start, stop - 1} | {i for i in spread if start <= i < stop})
            wanted = {i: _expected(data, chunk[i - start], i, apply) for i in checked}
            done = apply.to_many(chunk)
            for i in checked:
                _compare(done[i - start], wanted[i], i, apply.name, rtol=rtol, atol=atol)
            if out is None:
                out = _empty(done, num_samples)
            _check_fits(done, out, num_samples, start, apply.name)
            out[start:stop] = done
    return out


class _Apply:
    """The transform under one form: of one sample, and of many."""

    def __init__(self, transform: Any, dtype: Any) -> None:
        self._dtype = dtype
        self._is_scaler = not callable(transform) and callable(getattr(transform, "transform", None))
        if not self._is_scaler and not callable(transform):
            raise TypeError(f"{type(transform).__name__} is neither callable nor has it a transform method")
        self._function: Callable[[Any], Any] = transform.transform if self._is_scaler else transform
        self.name = getattr(transform, "__qualname__", None) or type(transform).__name__

    def to_one(self, sample: Any) -> Any:
        """One sample as ``__getitem__`` would have it."""
        if self._is_scaler and sample.ndim == 1:
            return self._typed(self._function(sample.reshape(1, -1)))[0]
        return self._typed(self._function(sample))

    def to_many(self, chunk: Any) -> Any:
        """Samples stacked along the first dimension."""
        try:
            if self._is_scaler and chunk.ndim == 3:
                rows = self._typed(self._function(chunk.reshape(-1, chunk.shape[-1])))
                done = rows.reshape(*chunk.shape[:2], *rows.shape[1:])
            else:
                done = self._typed(self._function(chunk))
        except Exception as error:
            raise NotVectorizable(
                f"{self.name} works on one sample, but on {len(chunk)} at once it raises "
                f"{type(error).__name__}: {error}",
                hint=_REWRITE,
            ) from error
        if done.ndim == 0 or len(done) != len(chunk):
            raise NotVectorizable(
                f"{self.name} makes shape {tuple(done.shape)} of {len(chunk)} samples at once",
                hint=_REWRITE,
            )
        return done

    def _typed(self, result: Any) -> Any:
        """The result as an array or tensor of the wanted type."""
        if hasattr(result, "toarray"):
            raise TypeError(f"{self.name} returns a sparse matrix; pretransform takes dense results")
        if not isinstance(result, torch.Tensor):
            result = np.asarray(result)
            if result.dtype.kind not in "biufc":
                raise TypeError(f"{self.name} returns no array of numbers, but {result.dtype}")
        if isinstance(self._dtype, torch.dtype):
            return torch.as_tensor(result).to(self._dtype)
        if self._dtype is not None:
            return np.asarray(result).astype(self._dtype)
        return result


def _expected(data: Any, as_read: Any, index: int, apply: _Apply) -> Any:
    """The transform of one sample alone, computed twice from two readings."""
    again = _sample(data, index)
    if not _same(as_read, again):
        raise NotVectorizable(
            f"sample {index} read twice gives different values: the data is random before {apply.name}",
            hint="pretransform what comes before the random part, and keep that part in __getitem__",
        )
    first, second = apply.to_one(again), apply.to_one(_copy(as_read))
    if not _same(first, second):
        raise NotVectorizable(
            f"{apply.name} gives other values for sample {index} a second time: it is random or keeps state",
            hint="a random transform belongs in __getitem__: done once it would freeze what it draws",
        )
    return first


def _compare(got: Any, wanted: Any, index: int, name: str, *, rtol: float, atol: float) -> None:
    for what in ("shape", "dtype"):
        alone, among = getattr(wanted, what), getattr(got, what)
        if alone != among:
            raise NotVectorizable(
                f"{name} gives {what} {alone} for sample {index} alone and {among} for it among others",
                hint=_REWRITE if what == "shape" else "say which with dtype=",
            )
    if _same(got, wanted):
        return
    one, other = _numpy(wanted), _numpy(got)
    if (rtol or atol) and np.allclose(other, one, rtol=rtol, atol=atol, equal_nan=True):
        return
    distance = np.abs(np.subtract(other, one, dtype=np.result_type(one, np.float64))).reshape(-1)
    largest = float(np.max(np.nan_to_num(distance, nan=np.inf, posinf=np.inf)))
    raise NotVectorizable(
        f"{name} gives other values for sample {index} alone than for it among others: "
        f"{int((distance != 0).sum()):,} of {distance.size:,} differ, by up to {largest:.3g}",
        hint="if that is rounding, allow it with rtol= and atol=; if something is computed over the samples "
        "given, keep it in __getitem__",
    )


def _sample(data: Any, index: int) -> Any:
    """One sample of its own memory."""
    sample = data[index]
    if isinstance(sample, (torch.Tensor, np.ndarray)):
        return _copy(sample)
    if isinstance(sample, (int, float, complex, np.generic)):
        return np.asarray(sample)
    raise TypeError(
        f"sample {index} is a {type(sample).__name__}; pretransform takes arrays, tensors or numbers"
        " (give it the array inside: dataset.tensors[0], dataset.features)"
    )


def _chunk(data: Any, start: int, stop: int) -> Any:
    """Samples ``start`` to ``stop`` stacked, of their own memory."""
    if hasattr(data, "shape") and hasattr(data, "dtype"):
        chunk = data[start:stop]
        return chunk.clone() if isinstance(chunk, torch.Tensor) else np.array(chunk)
    samples = [_sample(data, index) for index in range(start, stop)]
    for index, sample in enumerate(samples, start):
        if sample.shape != samples[0].shape or sample.dtype != samples[0].dtype:
            raise NotVectorizable(
                f"sample {index} is {sample.dtype} {tuple(sample.shape)}, sample {start} is "
                f"{samples[0].dtype} {tuple(samples[0].shape)}",
                hint="pretransform each array of one shape by itself",
            )
    return torch.stack(samples) if isinstance(samples[0], torch.Tensor) else np.stack(samples)


def _check_fits(done: Any, out: Any, num_samples: int, start: int, name: str) -> None:
    """``out`` takes exactly these results: nothing is broadcast or cast on the way."""
    if done.dtype != out.dtype:
        raise NotVectorizable(
            f"{name} gives {out.dtype} first and {done.dtype} from sample {start} on",
            hint="say which with dtype=",
        )
    if tuple(out.shape) != (num_samples, *done.shape[1:]):
        raise ValueError(
            f"out has shape {tuple(out.shape)}, the result {(num_samples, *tuple(done.shape[1:]))}"
        )


def _empty(like: Any, num_samples: int) -> Any:
    """Memory for all results, if there is that much."""
    num_bytes = like.nbytes // len(like) * num_samples
    usable = usable_memory_bytes()
    if num_bytes > usable:
        raise FeedError(
            f"the result takes {units.size(num_bytes)}, and {units.size(usable)} of memory are usable",
            hint="give out=numpy.lib.format.open_memmap(...), or dtype=numpy.float32",
        )
    if isinstance(like, torch.Tensor):
        return like.new_empty((num_samples, *like.shape[1:]))
    return np.empty((num_samples, *like.shape[1:]), like.dtype)


def _copy(array: Any) -> Any:
    return array.clone() if isinstance(array, torch.Tensor) else np.array(array)


def _same(first: Any, second: Any) -> bool:
    """Equal bit for bit, NaN and signed zero included."""
    if tuple(first.shape) != tuple(second.shape) or first.dtype != second.dtype:
        return False
    return _bytes(first) == _bytes(second)


def _bytes(array: Any) -> bytes:
    if isinstance(array, torch.Tensor):
        return tensor_bytes(array.detach().cpu()).tobytes()
    return np.ascontiguousarray(array).tobytes()


def _numpy(array: Any) -> Any:
    if not isinstance(array, torch.Tensor):
        return np.asarray(array)
    array = array.detach().cpu()
    return (array.float() if array.dtype in (torch.bfloat16, torch.float16) else array).numpy()
