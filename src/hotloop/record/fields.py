"""What comes from outside, field by field: what does not have the type of these tables is left out.

A run may come from anywhere and be damaged in any way. Whoever reads a Recording finds under these names a
value of the type below, or None. Other names are read by nobody, or only as true or false.
"""

from __future__ import annotations

import json
from typing import Any, Final

_ITEM: Final = object()  # a text, a number, true, false or null
#: Types, each with its names, or ``kind.name`` where two kinds of note mean different things. A list of one:
#: any number of these; a tuple: one of each; ``dict``: fields again; a dictionary by ``str``: of any name.
_GROUPS: Final[tuple[tuple[Any, str], ...]] = (
    (int, """
        t id pid ppid parent_main_pid rank local_rank world_size line end_line col end_col func_line site
        where via loader iterator num_workers prefetch_factor batch_size len num_batches num_params depth
        steps number cycle first_step last_step epoch version count hits misses entries updates
        start_ns end_ns opened_ns closed_ns ahead_ns exit_code cpu_count index open_files bar.stack bar.total
        layout compile.frames conv_ndim pcie_gen pcie_width pcie_gen_max pcie_width_max threads device_count
        longest real
    """),
    (float, """
        bytes param_bytes trainable_bytes buffer_bytes num_trainable timeout seconds share wall_s start_unix_s
        device_allocated device_reserved device_peak alloc_retries host_rss cpu_s read_bytes VmHWM VmPeak
        rchar minor_faults major_faults io_wait_s mean_s wait_s startup_s device_s device_busy_ratio
        launch_gap_ratio avg_backward_comm_s avg_backward_compute_s overlap_s cores
        ram_bytes memory_limit_bytes shm_bytes shm_free_bytes free_bytes memory_bytes power_limit_w
        power_limit_max_w bytes_each recompiles last min max alone_s alone_batches within_s
    """),
    (str, """
        note role executable cwd mark python start_method file func sha256 text class by sampler batch_sampler
        dataset collate_fn worker_init_fn module inner_class inner_module path dtype device wrapper name
        out_dtype when source key meaning option reader trace observer error status exact reason exception
        message of holder cpu_model hostname cpu_governor mount filesystem uuid driver kernel
        compute_capability device_name function why float32_matmul_precision disabled.place
        torch.version remedy.id folder
    """),
    ([str], """
        argv orig_argv command warnings without_torch torch_failed library names transforms files met devices
        members generators given paths
    """),
    ([int], "shape workers new"), ([float], "starts"), ([_ITEM], "read unread others"),
    ([dict], "fields kernels gpus fill parts"),
    ({str: int}, "param_dtypes graph_breaks oom_kills exit.memory"),
    (dict, "machine storage patch loader.dataset module.place exit.place"), ({str: str}, "env"),
    ({str: [float]}, "held"), ({str: (_ITEM, str, int)}, "set_by"),
    (_ITEM, "config.given config.value raw generators.python"),
    ([[_ITEM]], "stack frames"), ((str, int), "kept.place"),
    ([((str, int), float, float)], "lines"), ([(str, float, float)], "types"),
    ([(str, str, str, int, int)], "containers"), ([(str, _ITEM, str, [int])], "items"),
    ([(str, str, None)], "checkpoint.entries"),
)  # fmt: skip
_TYPES: Final = {name: wanted for wanted, names in _GROUPS for name in names.split()}
#: Without these a note says nothing; what ends in ? may be null.
_NEEDED: Final = {
    **dict.fromkeys(("site", "stack", "loader", "optimizer", "name", "remedy"), "id"),
    "module": "id num_params param_bytes trainable_bytes buffer_bytes",
    **dict.fromkeys(("dataset_changed", "dataset_written"), "loader names"), "iterator": "id loader",
    "batch": "iterator", "unread": "loader unread", "config": "source key", "files": "files",
    "block": "name cycle steps mean_s? valid?", "intervention": "name", "leaves": "loader paths",
    "trained": "of items", "checkpoint": "path layout", "cache": "id hits misses", "bar": "stack count total",
    "metric": "name count last?", "growth": "seconds steps lines types containers",
    "draws": "dataset generators", "kept": "dataset holder name entries bytes_each hits misses new",
}  # fmt: skip
_BAD: Final = object()


def checked(kind: str, fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of one kind with None in place of what is not of its type, and the names of those."""
    bad: list[str] = []
    found = {}
    for name, value in fields.items():
        found[name] = _fit(value, _TYPES.get(f"{kind}.{name}", _TYPES.get(name)), name, bad)
        if found[name] is _BAD:
            found[name] = None
            bad.append(name)
    return found, bad


def parse_note(line: bytes | str) -> tuple[dict[str, Any] | None, bool]:
    """The note on a line, None where it is not one, and whether all of it could be read."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None, False
    if not isinstance(fields, dict) or not isinstance(kind := fields.get("note"), str):
        return None, False
    note, bad = checked(kind, fields)
    for name in _NEEDED.get(kind, "").split():
        if note.get(name.rstrip("?")) is None and not name.endswith("?"):
            return None, False
        note.setdefault(name.rstrip("?"), None)
    return note, not bad


def _fit(value: Any, wanted: Any, name: str, bad: list[str]) -> Any:
    """``value`` where it is what is wanted, else ``_BAD``; of a dictionary the fields that are."""
    if value is None or wanted is None:
        return value
    if wanted is dict and isinstance(value, dict):
        fields, inside = checked(name, value)
        bad += inside
        return fields
    if wanted == [dict] and _is(value, wanted):
        return [_fit(one, dict, name, bad) for one in value]
    return value if _is(value, wanted) else _BAD


def _is(value: Any, wanted: Any) -> bool:
    kind = type(value)
    if wanted is _ITEM:
        return value is None or kind is bool or (kind in (str, int, float) and _is(value, kind))
    if wanted is int or wanted is float:
        return (kind is int or kind is wanted) and abs(value) < 1 << 62
    if wanted is str:
        return kind is str and "\0" not in value
    if isinstance(wanted, list):
        return isinstance(value, list) and all(_is(one, wanted[0]) for one in value)
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(_is(one, wanted[str]) for one in value.values())
    if isinstance(wanted, tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_is, value, wanted))
    return wanted is None or isinstance(value, wanted)


def is_count(*values: object) -> bool:
    """Whether all of them are whole numbers from 0 on, and none too large to count with."""
    return all(type(value) is int and 0 <= value < 1 << 62 for value in values)
