"""Parts of hotloop.feed put in place of torch's: the script then imports hotloop."""

from __future__ import annotations

import ast
from typing import Any

from hotloop.feed.budget import named_bytes, total_memory_bytes
from hotloop.fix.calls import made_at
from hotloop.fix.follow import Follower, Literal
from hotloop.fix.loaders import call_of, driving
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Built, Cannot
from hotloop.measure.attribution import SAVE_WRITE
from hotloop.measure.loaders import changes_of, written_of
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.nodes import argument, has_spread


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
    _, code, dataset = dataset_of(plan)
    size = f', max_bytes="{value}"' if value else ""
    new = f"{imported(plan, code, 'cached')}({code.source(dataset)}{size})"
    plan.replace(code, dataset, new, "the dataset is cached")


def dataset_of(plan: Plan) -> tuple[Built, Code, ast.expr]:
    """The driving loader, and the expression of its dataset. Raises Cannot where its samples do not stay."""
    built = driving(plan)
    code, call, _ = call_of(plan, built)
    place = str(code.path), code.line(call)
    if built.settings.get("iterable"):
        raise Cannot("an IterableDataset has no samples to keep", *place)
    if (built.settings.get("dataset") or {}).get("class") in ("Baked", "CachedDataset"):
        raise Already("the dataset is baked or cached already", *place)
    process = plan.scene.process
    if names := changes_of(process, built.id) or written_of(process, built.id):
        words = f"{', '.join(names)} of the dataset changes while it is trained on: samples do not stay"
        write = "keep what is made before it: hotloop.feed.cached(dataset, stage=...); do the rest each time"
        raise Cannot(words, *place, write=write)
    dataset = argument(call, "dataset", 0)
    if dataset is None:
        raise Cannot("the dataset is passed on by * or **", *place)
    return built, code, dataset


def memory_limit(plan: Plan, value: Any) -> None:
    """``max_bytes`` of ``hotloop.feed.cached``, where there is one and no finding means another cache."""
    calls = [
        (code, call)
        for code in plan.scene.codes("cached")
        for call in code.nodes(ast.Call)
        if code.qualified(call.func) == "hotloop.feed.cached"
    ]
    place = plan.scene.where.get(plan.remedy)
    if place is not None:  # a dictionary of the user's, say
        calls = [
            (code, call)
            for code, call in calls
            if place.file == str(code.path) and code.line(call) <= place.line <= code.end(call)[0]
        ]
    if len(calls) != 1:
        words = f"{len(calls)} calls of hotloop.feed.cached() make caches there"
        raise Cannot(words, place.file if place else "", place.line if place else 0)
    code, call = calls[0]
    follower = Follower(plan.scene, ())
    target = follower.argument(code, call, None, "max_bytes", given=has_spread(call))
    if isinstance(target, Literal):
        _require_smaller(target.code, target.node, value)
    plan.put(target, "max_bytes", value, f'"{value}"')


def _require_smaller(code: Code, node: ast.expr, value: Any) -> None:
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
    words = "no call of torch.save() of yours wrote a checkpoint"
    for code, call in made_at(plan, sites, _saves, words):
        new = imported(plan, code, "async_save")
        plan.replace(code, call.func, new, "torch.save → hotloop.feed.async_save")


def _saves(code: Code, call: ast.Call) -> bool:
    """Whether a call is ``torch.save`` in the format of today."""
    in_the_old_format = argument(call, "_use_new_zipfile_serialization") is not None
    return code.qualified(call.func) == "torch.save" and not in_the_old_format


def imported(plan: Plan, code: Code, name: str) -> str:
    """What a part of hotloop.feed is called in a file, imported there if it was not."""
    code = plan.scene.code(code.path)
    if not any(one.id == name for one in code.names()) and not code.global_names(name):
        plan.statement(code, f"from hotloop.feed import {name}")
        return name
    plan.statement(code, "import hotloop.feed")
    return f"hotloop.feed.{name}"
