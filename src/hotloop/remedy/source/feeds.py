"""Parts of hotloop.feed put in place of torch's: the script then imports hotloop."""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst

from hotloop.feed.budget import named_bytes, total_memory_bytes
from hotloop.findings import Place
from hotloop.measure.attribution import SAVE_WRITE
from hotloop.measure.loaders import changes_of, written_of
from hotloop.record import rows as row
from hotloop.remedy.source.code import Code, argument, has_spread
from hotloop.remedy.source.follow import Follower, Literal
from hotloop.remedy.source.loaders import call_of, driving
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot


def ring_loader(plan: Plan, value: Any) -> None:
    """``hotloop.feed.Loader`` in place of ``DataLoader``."""
    built = driving(plan)
    code, call, _ = call_of(plan, built)
    if built.kind != "DataLoader" or not code.qualified(call.func).endswith(".DataLoader"):
        raise Cannot(f"the loader is a {built.kind}", str(code.path), code.line(call))
    plan.replace(code, call.func, imported(plan, code, "Loader"), "DataLoader → hotloop.feed.Loader")
    plan.expect(built, "class", "hotloop.feed.loader.Loader")


def cache_samples(plan: Plan, value: Any) -> None:
    """``hotloop.feed.cached(dataset)``."""
    built = driving(plan)
    code, call, _ = call_of(plan, built)
    if built.settings.get("iterable"):
        raise Cannot("an IterableDataset has no samples to keep", str(code.path), code.line(call))
    if (built.settings.get("dataset") or {}).get("class") == "CachedDataset":
        raise Already("the dataset is cached already", str(code.path), code.line(call))
    process = plan.scene.process
    if names := changes_of(process, built.id) or written_of(process, built.id):
        words = f"{', '.join(names)} of the dataset changes while it is trained on: samples do not stay"
        write = (
            "keep what is made before it, hotloop.feed.cached(dataset, stage=...), and do the rest each time"
        )
        raise Cannot(words, str(code.path), code.line(call), write=write)
    dataset = argument(call, "dataset", 0)
    if dataset is None:
        raise Cannot("the dataset is passed on by * or **", str(code.path), code.line(call))
    source = code.source(dataset)
    size = f', max_bytes="{value}"' if value else ""
    plan.replace(code, dataset, f"{imported(plan, code, 'cached')}({source}{size})", "the dataset is cached")


def memory_limit(plan: Plan, value: Any) -> None:
    """``max_bytes`` of ``hotloop.feed.cached``, where there is one and no finding means another cache."""
    calls = [
        (code, call)
        for code in plan.scene.codes("cached")
        for call in code.nodes(cst.Call)
        if code.qualified(call.func) == "hotloop.feed.cached"
    ]
    place = plan.scene.where.get(plan.remedy)
    if place is not None:  # a dictionary of the user's, say
        calls = [(code, call) for code, call in calls if _is_at(code, call, place)]
    if len(calls) != 1:
        words = (
            "several calls of hotloop.feed.cached() make caches"
            if calls
            else "no cache of hotloop.feed is made there"
        )
        raise Cannot(words, place.file if place else "", place.line if place else 0)
    code, call = calls[0]
    follower = Follower(plan.scene, ())
    target = follower.argument(code, call, None, "max_bytes", given=has_spread(call))
    if isinstance(target, Literal):
        _require_smaller(target.code, target.node, value)
    plan.put(target, "max_bytes", value, f'"{value}"')


def _is_at(code: Code, call: cst.Call, place: Place) -> bool:
    return place.file == str(code.path) and code.line(call) <= place.line <= code.end(call)[0]


def _require_smaller(code: Code, node: cst.BaseExpression, value: Any) -> None:
    """Raises Cannot where a literal bounds the cache as tightly already."""
    try:
        now, wanted = (
            named_bytes(one, total_memory_bytes) for one in (ast.literal_eval(code.source(node)), value)
        )
    except (ValueError, TypeError):
        return
    if now <= wanted:
        raise Already(f"max_bytes is {code.source(node)} already", str(code.path), code.line(node))


def async_save(plan: Plan, value: Any) -> None:
    """``hotloop.feed.async_save`` in place of ``torch.save``, wherever the run wrote a checkpoint."""
    rows = plan.scene.process.rows
    sites = plan.scene.sites(rows[(rows["kind"] == row.SAVE) & (rows["obj"] == SAVE_WRITE)])
    found = 0
    for site in sites:
        frame = site.frames[-1]
        code = plan.scene.code(frame.file)
        call = code.call_at(frame.line, frame.col, site.end)
        if call is None or code.qualified(call.func) != "torch.save" or _in_the_old_format(call):
            continue
        new = imported(plan, code, "async_save")
        plan.replace(code, call.func, new, "torch.save → hotloop.feed.async_save")
        found += 1
    if not found:
        place = sites[0].frames[-1] if sites else None
        words = "no call of torch.save() of yours wrote a checkpoint"
        raise Cannot(words, place.file if place else "", place.line if place else 0)


def _in_the_old_format(call: cst.Call) -> bool:
    return argument(call, "_use_new_zipfile_serialization") is not None


def imported(plan: Plan, code: Code, name: str) -> str:
    """What a part of hotloop.feed is called in a file, imported there if it was not."""
    if not any(one.value == name for one in code.names()):
        plan.statement(code, f"from hotloop.feed import {name}")
        return name
    plan.statement(code, "import hotloop.feed")
    return f"hotloop.feed.{name}"
