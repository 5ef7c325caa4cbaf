"""Loops over parameters written with list forms: what is computed stays; what cannot be told is left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import foreach_scripts
from foreach_scripts import HEAD, REFUSED, TWO_PLACES, WRITTEN
from golden import patch_of, scene_of

from hotloop.findings import Place
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.source.patch import Patch, make

torch = pytest.importorskip("torch")

#: What a run notes of a model like those of the scripts.
MODULE = {"tied": False, "overlapping": False, "param_dtypes": {"float32": 40}}


def patch_with(folder: Path, text: str, remedy: str, **facts: Any) -> Patch:
    (folder / "train.py").write_text(text)
    where = {remedy: "train.py: HOT"}
    known = {"module": [MODULE], "torch": {"version": "2.13.0"}, "where": where, **facts}
    return patch_of(folder, {"apply": [remedy], **known})


def after(patch: Patch) -> str:
    assert patch.files, patch.left
    (_, new) = next(iter(patch.files.values()))
    return new.decode()


def why_not(patch: Patch) -> str:
    assert not patch.files
    return patch.left[0].why


def ran(text: str) -> Sequence[Any]:
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(text, "train.py", "exec"), names)
    torch.manual_seed(3)
    found = names["run"]()
    return [one.detach() for one in found]


@pytest.mark.parametrize("name", WRITTEN)
def test_the_list_forms_compute_the_same_bits(name: str, tmp_path: Path) -> None:
    text = HEAD + WRITTEN[name][0]
    new = after(patch_with(tmp_path, text, "foreach-loop"))
    assert "_foreach_" in new
    for one, other in zip(ran(text), ran(new), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", WRITTEN)
def test_an_average_is_one_interpolation_that_differs_by_rounding(name: str, tmp_path: Path) -> None:
    text, averages = HEAD + WRITTEN[name][0], WRITTEN[name][1]
    new = after(patch_with(tmp_path, text, "foreach-lerp"))
    assert ("_foreach_lerp" in new) == averages
    for one, other in zip(ran(text), ran(new), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("remedy", ["foreach-loop", "foreach-lerp"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_is_left(name: str, remedy: str, tmp_path: Path) -> None:
    text, words = REFUSED[name]
    assert words in why_not(patch_with(tmp_path, HEAD + text, remedy))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"module": [{**MODULE, "tied": True}]}, "tied weights"),
        ({"module": []}, "tied weights"),
        ({"module": [{**MODULE, "overlapping": True}]}, "each other's memory"),
        ({"module": [{**MODULE, "param_dtypes": {"bfloat16": 40}}]}, "bfloat16"),
        ({"module": [{**MODULE, "sharded": True}]}, "parts of the parameters"),
        ({"torch": {"version": "1.13.1"}}, "2.2"),
        ({"where": {}}, "no loop over parameters"),
    ],
)
def test_what_the_run_says_is_heard(facts: dict[str, Any], words: str, tmp_path: Path) -> None:
    text = HEAD + WRITTEN["a state dict with integers"][0]
    assert words in why_not(patch_with(tmp_path, text, "foreach-loop", **facts))


@pytest.mark.parametrize(
    ("name", "remedy", "size", "written"),
    [
        ("an average of two statements", "foreach-loop", 4 << 20, False),
        ("an average of two statements", "foreach-loop", 4 << 10, True),
        ("an average of two statements", "foreach-lerp", 4 << 20, True),  # nothing is made on the way
        ("momentum encoder of moco", "foreach-lerp", 4 << 20, False),
        ("gradients clamped by value", "foreach-loop", 4 << 20, False),
        ("literals, lerp", "foreach-loop", 4 << 20, True),
    ],
)
def test_large_lists_that_a_cpu_is_slower_with_are_left(
    name: str, remedy: str, size: int, written: bool, tmp_path: Path
) -> None:
    text, module = HEAD + WRITTEN[name][0], {**MODULE, "param_bytes": size}
    patch = patch_with(tmp_path, text, remedy, module=[module])
    assert written or "a loop, which uses its cache again" in why_not(patch)
    assert bool(patch.files) == written
    gpu = {"version": "2.13.0", "cuda": "12.4", "device_count": 1}
    assert patch_with(tmp_path, text, remedy, module=[module], torch=gpu).files


def test_every_loop_that_a_finding_names_is_written(tmp_path: Path) -> None:
    text = HEAD + TWO_PLACES
    (tmp_path / "train.py").write_text(text)
    facts = {"module": [MODULE], "where": {"foreach-loop": "train.py: HOT"}}
    scene = scene_of(tmp_path, facts)
    second = Place(file=str(tmp_path / "train.py"), line=1 + text[: text.index("clamp_")].count("\n"))
    places = (scene.where["foreach-loop"], second)
    applied = [Applied(remedy=catalogue.get("foreach-loop"), value=None)]
    new = after(make(replace(scene, asked_at={"foreach-loop": places}), applied))
    assert "_foreach_mul_" in new
    assert "_foreach_clamp_max_" in new
    for one, other in zip(ran(text), ran(new), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("dtype", "line"),
    [
        ("bfloat16", ""),
        ("float32", "ema = copy.deepcopy(model).double()"),
        ("float32", "x.to(torch.bfloat16)"),
    ],
)
def test_an_average_that_may_have_another_dtype_is_no_interpolation(
    dtype: str, line: str, tmp_path: Path
) -> None:
    text = f"{HEAD}{WRITTEN['an average of two statements'][0]}\ndef other(model, x):\n    {line or 'pass'}\n"
    facts = {"module": [{**MODULE, "param_dtypes": {dtype: 40}}]}
    new = after(patch_with(tmp_path, text, "foreach-lerp", **facts))
    assert "_foreach_lerp_" not in new
    assert "_foreach_mul_" in new


def test_what_autocast_computes_in_is_no_dtype_of_the_weights(tmp_path: Path) -> None:
    text = HEAD + WRITTEN["an average of two statements"][0]
    text += "\ndef other():\n    return torch.autocast('cuda', dtype=torch.bfloat16)\n"
    assert "_foreach_lerp_" in after(patch_with(tmp_path, text, "foreach-lerp"))


def test_what_rounds_otherwise_on_a_gpu_is_left_there(tmp_path: Path) -> None:
    text = HEAD + foreach_scripts.DIVIDED
    assert "_foreach_div_" in after(patch_with(tmp_path, text, "foreach-loop"))
    gpu = {"version": "2.13.0", "cuda": "12.4", "device_count": 1}
    left = patch_with(tmp_path, text, "foreach-loop", torch=gpu)
    assert "on a GPU div may round otherwise" in why_not(left)
    assert "_foreach_div_" in after(patch_with(tmp_path, text, "foreach-lerp", torch=gpu))
