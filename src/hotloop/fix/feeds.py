"""Parts of hotloop.feed put in place of torch's: the script then imports hotloop."""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from hotloop.fix.calls import made_at, sites_of
from hotloop.fix.loaders import call_of, driving, for_all
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Already, Built, Cannot
from hotloop.fix.waiting import loop_of
from hotloop.measure.attribution import SAVE_WRITE
from hotloop.measure.loaders import changes_of, written_of
from hotloop.record import rows as row
from hotloop.source.code import Code
from hotloop.source.nodes import FUNCTIONS, argument, last_name, root_of, targets_of, text_of
from hotloop.source.tokens import tokens_of

#: What makes a tensor of a row. ``torch.from_numpy`` costs little more than the copying.
_CONVERTS: Final = frozenset(
    f"torch.{name}" for name in ("tensor", "as_tensor", "FloatTensor", "DoubleTensor", "LongTensor")
)
_OPTIONS: Final = frozenset(["dtype", "device"])


@for_all
def ring_loader(plan: Plan, value: Any, built: Built) -> None:
    """``hotloop.feed.Loader`` in place of ``DataLoader``."""
    _ring(plan, built)


def _ring(plan: Plan, built: Built) -> None:
    code, call, _ = call_of(plan, built)
    name = code.qualified(call.func)
    if built.kind != "DataLoader" or not (name.startswith("torch.") and name.endswith(".DataLoader")):
        raise Cannot.at(f"the loader is a {built.kind}", code, call)
    plan.replace(code, call.func, imported(plan, code, "Loader"), "DataLoader → hotloop.feed.Loader")
    plan.expect(built, "class", "hotloop.feed.loader.Loader")


@for_all
def cache_samples(plan: Plan, value: Any, built: Built) -> None:
    """``hotloop.feed.cached(dataset)``."""
    code, dataset = dataset_of(plan, built)
    _gathered(plan, built)
    size = f', max_bytes="{value}"' if value else ""
    new = f"{imported(plan, code, 'cached')}({code.source(dataset)}{size})"
    plan.replace(code, dataset, new, "the dataset is cached")


def _gathered(plan: Plan, built: Built) -> None:
    """Kept samples gathered to batches, as the live form does: one by one they cost several times that."""
    if "collate_fn" not in built.given:
        try:
            _ring(plan, built)
        except Cannot as cannot:
            plan.remark(f"{plan.remedy}: torch puts batches together sample by sample, for {cannot.why}")


def dataset_of(plan: Plan, built: Built) -> tuple[Code, ast.expr]:
    """The expression of a loader's dataset. Raises Cannot where its samples do not stay."""
    code, call, _ = call_of(plan, built)
    if built.settings.get("iterable"):
        raise Cannot.at("an IterableDataset has no samples to keep", code, call)
    if (built.settings.get("dataset") or {}).get("class") in ("Baked", "CachedDataset"):
        raise Already.at("the dataset is baked or cached already", code, call)
    process = plan.scene.process
    if names := changes_of(process, built.id) or written_of(process, built.id):
        words = f"{', '.join(names)} of the dataset changes while it is trained on: samples do not stay"
        write = "keep what is made before it: hotloop.feed.cached(dataset, stage=...); do the rest each time"
        raise Cannot.at(words, code, call, write=write)
    dataset = argument(call, "dataset", 0)
    if dataset is None:
        raise Cannot.at("the dataset is passed on by * or **", code, call)
    return code, dataset


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
    if not any(one.id == name for one in code.nodes(ast.Name)) and not code.global_names(name):
        plan.statement(code, f"from hotloop.feed import {name}")
        return name
    plan.statement(code, "import hotloop.feed")
    return f"hotloop.feed.{name}"


def bake(plan: Plan, value: Any) -> None:
    """``hotloop.feed.bake(dataset, folder)``, which opens a bake that is there and refuses a stale one."""
    built = driving(plan)
    code, dataset = dataset_of(plan, built)
    if any(one.id != built.id and one.site.frames[-1] == built.site.frames[-1] for one in plan.scene.loaders):
        raise Cannot.at("the same call builds other loaders, whose samples are others", code, dataset)
    _require_samples_only(plan)
    _gathered(plan, built)
    folder = str(value) if value else _folder(built)
    new = f'{imported(plan, code, "bake")}({code.source(dataset)}, "{folder}")'
    plan.replace(code, dataset, new, f"the dataset is baked into {folder}")
    plan.remark(
        f"bake: the first run writes all samples to {folder}, in the folder it is started in, "
        "before it trains; a run with another dataset, or other code of it, ends with an error that says so"
    )


def _folder(built: Built) -> str:
    """``scan-windows.baked`` of a ScanWindows."""
    name = str((built.settings.get("dataset") or {}).get("inner_class") or "dataset")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower() + ".baked"


def _require_samples_only(plan: Plan) -> None:
    """Raises Cannot where the dataset is asked for more than samples; ``bake`` refuses random ones itself."""
    for other in plan.scene.codes(".dataset."):
        for node in other.nodes(ast.Attribute):
            if isinstance(node.value, ast.Attribute) and node.value.attr == "dataset":
                raise Cannot.at("more than its samples is asked of the loader's dataset here", other, node)


# -- rows that are made tensors one by one and stacked -------------------------------------------------------


def batched_convert(plan: Plan, value: Any) -> None:
    """``stacked(torch.tensor, rows)`` in place of ``torch.stack([torch.tensor(row) for row in rows])``.

    What kind the rows are of shows in no source: ``stacked`` looks, and leaves to torch what only it knows.
    """
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("no finding names rows that are converted one by one")
    code = plan.scene.code(place.file)
    scopes = [one for one in code.nodes(FUNCTIONS) if one.lineno <= place.line <= code.end(one)[0]]
    scope: ast.AST = scopes[-1] if scopes else code.module
    function = scopes[-1] if scopes else None
    refused: list[Cannot] = []
    written = 0
    for call in code.nodes(ast.Call, scope):
        if code.qualified(call.func) != "torch.stack" or code.function_of(call) is not function:
            continue
        try:
            _stacked(plan, code, call)
            written += 1
        except Cannot as cannot:
            refused.append(cannot)
    if written:
        for one in refused:
            plan.remark(f"{code.path.name}:{one.line} is left as it is: {one.why}")
        return
    if refused:
        raise min(refused, key=lambda one: abs(one.line - place.line))
    if any(code.qualified(call.func) == "hotloop.feed.stacked" for call in code.nodes(ast.Call, scope)):
        raise Already("the rows are converted at once already", str(code.path), place.line)
    raise Cannot("no rows are made tensors and stacked here", str(code.path), place.line)


def _stacked(plan: Plan, code: Code, call: ast.Call) -> None:
    """One call of ``torch.stack``. Raises Cannot."""
    made = call.args[0] if call.args else None
    if not isinstance(made, ast.ListComp) or len(made.generators) != 1:
        raise Cannot.at("what is stacked is no list comprehension over rows", code, call)
    if len(call.args) > 1 or any(
        one.arg != "dim" or not isinstance(one.value, ast.Constant) or one.value.value != 0
        for one in call.keywords
    ):
        raise Cannot.at("it is stacked along another dimension, or into a tensor that is given", code, call)
    convert, each = made.elt, made.generators[0]
    if not isinstance(convert, ast.Call) or code.qualified(convert.func) not in _CONVERTS:
        raise Cannot.at(f"{code.source(convert)} is more than one conversion of a row", code, call)
    if len(convert.args) != 1 or isinstance(convert.args[0], ast.Starred):
        raise Cannot.at("the conversion is not given one row", code, call)
    own = {one.id for one in code.nodes(ast.Name, each.target)}
    for option in convert.keywords:
        names = {one.id for one in code.nodes(ast.Name, option.value)}
        if option.arg not in _OPTIONS or names & own:
            raise Cannot.at(f"{option.arg} is no option of all rows together", code, call)
    if tokens_of(code).has_comment(*code.span(call)):
        raise Cannot.at("a comment stands in it", code, call)
    given = [code.source(convert.func), _rows(code, convert.args[0], made)]
    given += [code.source(option) for option in convert.keywords]
    name = imported(plan, code, "stacked")
    says = f"rows that {code.source(convert.func)} converts one by one → hotloop.feed.stacked"
    plan.replace(code, call, f"{name}({', '.join(given)})", says)


def _rows(code: Code, row: ast.expr, made: ast.ListComp) -> str:
    """The rows: what is gone through, or a generator where each is computed."""
    each = made.generators[0]
    plain = isinstance(row, ast.Name) and isinstance(each.target, ast.Name) and row.id == each.target.id
    if plain and not each.ifs:
        return tokens_of(code).enclosed(each.iter)
    start, end = code.span(made.elt)[1], code.span(made)[1] - 1
    words = " ".join(code.text.text[start:end].split())
    return f"({' '.join(tokens_of(code).enclosed(row).split())} {words})"


# Prefetching


#: What hands on one item of its first argument for each of its own.
_AROUND: Final = frozenset(["enumerate", "tqdm"])
#: What a name may not stand for: taken on between loops, or shown as it goes.
_PASSES: Final = frozenset(["iter", "zip", "islice", "chain", "cycle", "map", "filter", *_AROUND])


def device_prefetch(plan: Plan, value: Any) -> None:
    """``for batch in DevicePrefetcher(loader, device)``; the ``.to(device)`` behind it then costs nothing."""
    code, loop = loop_of(plan)
    if not isinstance(loop, ast.For):
        raise Cannot.at("the training loop is no plain for loop", code, loop)
    head = range(loop.lineno, code.line(loop.body[0]))
    fetched = [site.frames[-1] for site in sites_of(plan, row.FETCH)]
    if not any(frame.file == str(code.path) and frame.line in head for frame in fetched):
        raise Cannot.at("the training loop does not ask the loader itself", code, loop)
    given, device = _over(code, loop), _one_device(plan, code, loop)
    words = code.source(given)
    if f"{words}.state_dict" in code.text.text:
        raise Cannot.at("the loader's state would be that of batches read ahead", code, loop)
    new = f"{imported(plan, code, 'DevicePrefetcher')}({words}, {device})"
    plan.replace(code, given, new, f"{words} → {new}")
    built = plan.scene.loaders
    if built and not plan.setting(built[0], "pin_memory"):
        plan.remark("only batches that are pinned are copied while a step computes: add pin-memory")
    if built and not plan.setting(built[0], "num_workers"):
        plan.remark(
            "without workers the next batches are made before the step: what dataset and loop draw from one "
            "generator comes in another order"
        )


def _over(code: Code, loop: ast.For) -> ast.expr:
    """What a loop goes over, below what counts or shows progress. Raises Cannot."""
    node = loop.iter
    while isinstance(node, ast.Call) and node.args and last_name(node.func) in _AROUND:
        node = node.args[0]
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(root_of(node), ast.Name):
        raise Cannot.at(f"the loop goes over {code.source(node)}, not over a name", code, loop)
    for one in code.bindings(node, node.id) if isinstance(node, ast.Name) else ():
        if isinstance(one.value, ast.Call) and last_name(one.value.func) in _PASSES:
            raise Cannot.at(f"{one.name} is no loader, but goes over one", code, one.node)
    return node


def _one_device(plan: Plan, code: Code, loop: ast.For) -> str:
    """The device that the calls in the loop copy batches to, as they spell it. Raises Cannot."""
    rows = plan.scene.process.rows
    found: dict[str, ast.Call] = {}
    for site in plan.scene.sites(rows[(rows["kind"] == row.TRANSFER) & (rows["obj"] == 1)]):
        frame = site.frames[-1]
        call = code.call_at(frame.line, frame.col, site.end) if frame.file == str(code.path) else None
        if call is not None and code.holds(loop, call) and _device(code, call):
            found[_device(code, call)] = call
    if len(found) != 1:
        words = "the loop copies to several devices, or spells one in several ways"
        none = "no .to() or .cuda() in the training loop copied a batch to a device"
        raise Cannot.at(words if found else none, code, loop)
    words, call = next(iter(found.items()))
    node = argument(call, "device", 0)
    if node is None or text_of(node) is not None:
        return words
    set_here = [last_name(one) for inner in code.under(loop) for one in targets_of(inner)]
    if not isinstance(node, ast.Name | ast.Attribute) or last_name(node) in set_here:
        raise Cannot.at(f"the device is {words}, no name that is there before the loop", code, call)
    return words


def _device(code: Code, call: ast.Call) -> str:
    """The device that ``.to()`` or ``.cuda()`` copies to; "" for any other call."""
    node = argument(call, "device", 0)
    if node is None:
        return '"cuda"' if last_name(call.func) == "cuda" else ""
    return code.source(node) if last_name(call.func) in ("to", "cuda") else ""
