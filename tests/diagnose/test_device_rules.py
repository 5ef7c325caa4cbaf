"""The device family against runs whose truth is known. No accelerator is needed: its clock is data here."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from synthetic import TRAIN, evidence, line, loader, steps

from hotloop.diagnose.diagnose import diagnose
from hotloop.findings import Finding, Place
from hotloop.flow.brief import _recipe
from hotloop.measure.steps import DeviceUse, LineCost, ModuleCost, Setting, Steps

MODEL = {"forward": 0.02, "backward": 0.03, "optimizer": 0.005}
AMPERE = {"gpus": [{"name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0", "memory_bytes": 80e9}]}
PASCAL = {"gpus": [{"name": "GeForce GTX 1080", "compute_capability": "6.1", "memory_bytes": 8e9}]}
PER = "nodes_per_backward"
NET = {
    "class": "Net",
    "num_params": 25_000_000,
    "num_trainable": 25_000_000,
    "param_dtypes": {"float32": 100},
}
FLAGS = {
    "threads": 8, "device_name": "NVIDIA A100", "matmul_allow_tf32": False, "cudnn_allow_tf32": True,
    "float32_matmul_precision": "highest", "cudnn_benchmark": False, "cudnn_deterministic": False,
    "deterministic_algorithms": False,
}  # fmt: skip


def on_device(
    *,
    busy: float = 0.97,
    idle: dict[str, float] | None = None,
    facts: dict[str, Any] | None = None,
    **fields: Any,
) -> Steps:
    """A run on an accelerator: device-bound unless told."""
    return steps(
        {"forward": 0.02, "backward": 0.03, "optimizer": 0.005},
        device=DeviceUse(busy_ratio=busy, idle_s_by_phase=idle or {}),
        facts={
            "accelerator": True,
            "torch": FLAGS,
            "modules": [NET],
            "optimizers": [{"class": "AdamW", "num_params": 160, "fused": None, "foreach": None}],
            "autocast": {"device": "cuda", "dtype": "bfloat16", "share": 1.0},
            **(facts or {}),
        },
        **fields,
    )


def found(measured: Steps, machine: dict[str, Any] | None = None, **world: Any) -> dict[str, Finding]:
    return {item.id: item for item in diagnose(evidence(measured, machine=machine or AMPERE, **world))}


OFF = {"autocast": {"device": "cuda", "dtype": None, "share": 0.0}}


# healthy


def test_a_device_bound_run_in_half_precision_hears_nothing_above_info() -> None:
    assert {item.severity for item in found(on_device()).values()} <= {"info"}


def test_a_cpu_run_gets_no_advice_for_accelerators() -> None:
    facts = {"torch": {**FLAGS, "device_name": None}, "modules": [{**NET, "has_conv": True}], **OFF}
    measured = steps(MODEL, facts={**facts, "optimizers": [{"class": "AdamW", "num_params": 400}]})
    assert set(found(measured, cores=8)) <= {"device/optimizer-not-fused"}  # a CPU has a fused kernel too


@pytest.mark.parametrize(
    ("settings", "is_named"),
    [
        (None, True),
        ({"batch_size": None}, True),
        ({"batch_size": 32}, False),
        ({"batch_size": None, "batch_sampler": "torch.utils.data.sampler.BatchSampler"}, False),
    ],
)
def test_many_small_calls_are_the_batches_only_where_no_loader_makes_them(settings, is_named) -> None:
    uses = () if settings is None else (loader(settings=settings),)
    measured = steps(MODEL, facts={"modules": [NET], "graph": {PER: 1000}}, loaders=uses)
    assert ("host/launch-bound" in found(measured)) is is_named


@pytest.mark.parametrize(
    ("text", "operations", "severity"),
    [
        ("net = Net()\nnet.double()", 9, "low"),
        ("torch.set_default_dtype(torch.float64)", 9, "info"),
        ("net.double()", 1000, None),  # calls take as long in float32
    ],
)
def test_float64_that_nothing_asks_for(text: str, operations: int, severity: str | None) -> None:
    facts = {
        "modules": [{**NET, "param_dtypes": {"float64": 100}}],
        "graph": {PER: operations},
    }
    measured = steps(MODEL, facts=facts)
    items = found(measured, sources={TRAIN: text})
    assert ("device/float64" in items) == (severity is not None)
    assert ("host/launch-bound" in items) == (severity is None)
    if severity is not None:
        assert items["device/float64"].severity == severity
    if severity == "low":
        assert items["device/float64"].where == Place(file=TRAIN, line=2)


# precision


def test_amp_off_in_a_device_bound_run() -> None:
    item = found(on_device(facts=OFF))["device/amp-off"]
    assert "bfloat16" in item.advice
    assert item.severity == "medium"
    assert any("assumed" in text for text in item.evidence)


@pytest.mark.parametrize(
    "changed",
    [
        {"busy": 0.4},  # the device is not what the run waits for
        {
            "facts": {**OFF, "modules": [{**NET, "num_params": 10_000, "num_trainable": 10_000}]}
        },  # too small to gain
        {"facts": {**OFF, "modules": [{**NET, "param_dtypes": {"bfloat16": 100}}]}},  # half precision already
        {"facts": {"autocast": None}},  # nobody looked
    ],
)
def test_when_amp_off_cannot_be_told_or_does_not_matter(changed: dict[str, Any]) -> None:
    assert "device/amp-off" not in found(on_device(**changed))


def test_half_precision_is_no_advice_without_tensor_cores() -> None:
    items = found(on_device(facts=OFF), machine=PASCAL)
    assert "device/amp-off" not in items
    assert "device/tf32-off" not in items


def test_amp_configured_and_never_entered() -> None:
    amp = (Setting(name="amp", in_effect=False, configured=True, where="configs/a.yaml:3"),)
    item = found(on_device(facts=OFF, settings=amp))["device/amp-not-in-effect"]
    assert item.cost_s_per_step > 0
    assert "device/amp-off" not in found(on_device(facts=OFF, settings=amp))
    assert "device/amp-not-in-effect" not in found(on_device(settings=amp))  # entered


def test_amp_configured_on_a_cpu_is_information() -> None:
    amp = (Setting(name="amp", in_effect=False, configured=True),)
    measured = steps(MODEL, facts=OFF, settings=amp)
    assert found(measured)["device/amp-not-in-effect"].severity == "info"


def test_tf32_off_only_where_float32_products_are_the_work() -> None:
    assert "device/tf32-off" in found(on_device(facts=OFF))
    assert "device/tf32-off" not in found(on_device())  # under autocast nothing is left of them
    assert "device/tf32-off" not in found(on_device(facts={**OFF, "modules": [{**NET, "has_conv": True}]}))
    high = {**FLAGS, "float32_matmul_precision": "high", "matmul_allow_tf32": True}
    assert "device/tf32-off" not in found(on_device(facts={**OFF, "torch": high}))


# convolutions

CONV = {**NET, "has_conv": True, "conv_ndim": 2, "channels_last": False}


def shapes(*of: list[int]) -> dict[str, Any]:
    return {"batch": [{"loader": 1, "fields": [{"path": "0", "shape": shape}]} for shape in of]}


def test_cudnn_benchmark_needs_one_shape() -> None:
    measured = on_device(facts={"modules": [CONV]})
    same = shapes([32, 3, 64, 64], [32, 3, 64, 64], [7, 3, 64, 64])
    assert "device/cudnn-benchmark-off" in found(measured, notes=same)
    assert "device/cudnn-benchmark-off" not in found(measured, notes=shapes([32, 3, 64, 64], [32, 3, 80, 64]))
    assert "device/cudnn-benchmark-off" not in found(measured)  # no batch was noted


def test_channels_last_is_for_half_precision_convolutions() -> None:
    assert "device/channels-last-off" in found(on_device(facts={"modules": [CONV]}))
    assert "device/channels-last-off" not in found(
        on_device(facts={"modules": [{**CONV, "channels_last": True}]})
    )
    assert "device/channels-last-off" not in found(on_device(facts={"modules": [CONV], **OFF}))
    assert "device/channels-last-off" not in found(on_device(facts={"modules": [{**CONV, "conv_ndim": 1}]}))


def test_on_a_cpu_a_launch_says_what_channels_last_saves() -> None:
    def item(module: dict[str, Any], *timed: ModuleCost, **phases: float) -> Finding | None:
        run = steps(phases, facts={"modules": [module]}, modules=timed)
        return found(run).get("device/channels-last-off")

    busy = {"forward": 0.02, "backward": 0.03}
    told = item(CONV, **busy)
    assert told is not None and told.severity == "info" and told.data["unpriced"]
    assert told.remedies == ("channels-last",)
    assert item({**CONV, "channels_last": True}, **busy) is None
    assert item(CONV, **busy, data_wait=0.05) is None
    first = ModuleCost(name="embed.proj", cls="Conv2d", forward_share=0.01, backward_share=0.01, depth=2)
    assert item(CONV, first, **busy) is None  # of a transformer
    around = replace(first, name="embed", cls="ConvEmbed", forward_share=0.9)
    assert item(CONV, around, first, **busy) is None
    assert item(CONV, replace(first, forward_share=0.2), **busy) is not None


def test_deterministic_algorithms_take_the_place_of_benchmarking() -> None:
    measured = on_device(facts={"modules": [CONV], "torch": {**FLAGS, "deterministic_algorithms": True}})
    items = found(measured, notes=shapes([32, 3, 64, 64]))
    assert "device/deterministic-on" in items
    assert "device/cudnn-benchmark-off" not in items


# compile


def compiled(at: list[int], each_s: float = 1.0, num_steps: int = 60, **fields: Any) -> Steps:
    forward = np.full(num_steps, 0.02)
    forward[at] += each_s
    return steps(
        {"forward": forward.tolist(), "backward": 0.03},
        num_steps=num_steps,
        compiles_at=tuple(at),
        compile_s=each_s * len(at),
        facts={"compile": {"frames": 3, "recompiles": len(at)}},
        **fields,
    )


def test_recompiling_costs_the_excess_of_those_steps() -> None:
    item = found(compiled([0, 1, 10, 20, 30, 40]))["device/recompiles"]
    assert item.cost_s_per_step == pytest.approx(4.0 / 60)  # not the two of the warm-up
    assert item.severity == "high"


@pytest.mark.parametrize("at", [[0], [0, 1, 2], [0, 1, 30], []])
def test_compiling_once_is_a_warm_up(at: list[int]) -> None:
    assert "device/recompiles" not in found(compiled(at))


def test_graph_breaks_carry_their_reasons() -> None:
    facts = {"compile": {"frames": 3, "graph_breaks": {"Tensor.item": 2, "print": 1}}}
    item = found(steps(MODEL, graph_breaks=3, facts=facts))["device/graph-breaks"]
    assert item.severity == "info"
    assert item.evidence[0] == "2 x Tensor.item"
    bound = on_device(busy=0.4, idle={"forward": 2.0}, graph_breaks=3, facts=facts)
    assert found(bound)["device/graph-breaks"].severity == "low"


def test_compile_off_is_for_device_bound_models() -> None:
    assert found(on_device())["device/compile-off"].severity == "info"
    assert "device/compile-off" not in found(on_device(facts={"modules": [{**NET, "compiled": True}]}))
    assert "device/compile-off" not in found(on_device(busy=0.3))


# optimizer


def optimizing(share_of_step: float, *, foreach: bool | None, tensors: int = 300, **fields: Any) -> Steps:
    rest = 1 - share_of_step
    facts = {"optimizers": [{"class": "AdamW", "num_params": tensors, "foreach": foreach, "fused": None}]}
    phases = {"forward": 0.05 * rest, "backward": 0.05 * rest, "optimizer": 0.1 * share_of_step}
    return steps(phases, facts=facts, **fields)


@pytest.mark.parametrize(
    ("share_of_step", "foreach", "tensors", "told"),
    [(0.4, False, 300, True), (0.4, None, 300, False), (0.05, False, 300, False), (0.4, False, 8, False)],
)
def test_a_looping_optimizer_on_a_cpu(
    share_of_step: float, foreach: bool | None, tensors: int, told: bool
) -> None:
    item = found(optimizing(share_of_step, foreach=foreach, tensors=tensors)).get(
        "device/optimizer-not-fused"
    )
    assert (item is not None and item.severity != "info") is told


@pytest.mark.parametrize(
    ("facts", "share_of_step", "told"),
    [
        ({"class": "Adam"}, 0.3, True),
        ({"class": "AdamW", "foreach": False}, 0.3, True),
        ({"class": "Adam"}, 0.03, False),
        ({"class": "Adam", "fused": True}, 0.3, False),
        ({"class": "SGD"}, 0.3, False),
        ({"class": "Lion"}, 0.3, False),
    ],
)
def test_the_default_on_a_cpu_is_for_a_launch_to_say(
    facts: dict[str, Any], share_of_step: float, told: bool
) -> None:
    measured = optimizing(share_of_step, foreach=None)
    measured = replace(measured, facts={"optimizers": [{"num_params": 4, **facts}]})
    built = f"import torch\n\noptimizer = torch.optim.{facts['class']}(model.parameters())\n"
    item = found(measured, sources={TRAIN: built}).get("device/optimizer-not-fused")
    assert (item is not None) is told
    if item is not None:
        assert item.where == Place(file=TRAIN, line=3)
        assert item.severity == "info"
        assert item.cost_s_per_step == 0
        assert item.remedies == ("fused-optimizer",)
        assert item.data["unpriced"]


def test_an_optimizer_that_lets_the_device_idle() -> None:
    assert "device/optimizer-not-fused" in found(on_device(busy=0.6, idle={"optimizer": 1.5}))
    assert "device/optimizer-not-fused" not in found(on_device(busy=0.97, idle={"optimizer": 0.05}))


def test_a_home_made_optimizer_looping_over_parameters() -> None:
    source = "class Own:\n  def step(self):\n    for p in self.params:\n      p.data.add_(p.grad)\n"
    hot = line(
        4, 3.0, file=TRAIN, function="Own.step", phase="optimizer", nature="python", source="p.data.add_(...)"
    )
    measured = steps({"forward": 0.02, "backward": 0.02, "optimizer": 0.03}, lines=(hot,))
    item = found(measured, sources={TRAIN: source})["device/optimizer-not-fused"]
    assert item.where == hot.place
    assert "_foreach_" in item.advice
    copied = replace(hot, nature="native", place=replace(hot.place, function="AdamW.step"))
    for seconds, cost_s in ((3.0, 0.015), (0.1, None)):
        named = replace(
            measured, lines=(replace(copied, seconds=seconds),), facts={"optimizers": [{"class": "AdamW"}]}
        )
        item = found(named, sources={TRAIN: source}).get("device/optimizer-not-fused")
        assert (item and (item.cost_s_per_step, item.where)) == (
            cost_s and (pytest.approx(cost_s), copied.place)
        )


# modules, batch, memory


def module(name: str, forward: float, backward: float, depth: int = 1) -> ModuleCost:
    return ModuleCost(name=name, cls="Block", forward_share=forward, backward_share=backward, depth=depth)


def test_the_smallest_hot_module_is_named_as_information() -> None:
    modules = (
        module("", 1.0, 1.0, 0), module("encoder", 0.9, 0.9), module("encoder.attn", 0.6, 0.7, 2),
        module("encoder.mlp", 0.2, 0.1, 2), module("head", 0.1, 0.1),
    )  # fmt: skip
    item = found(steps(MODEL, modules=modules))["device/hot-module"]
    assert item.data["module"] == "encoder.attn"
    assert item.data["share"] == pytest.approx(0.66)
    assert item.severity == "info"
    shared = replace(evidence(steps(MODEL, modules=modules)), got=0.4)  # of a core: wherever it waited is hot
    assert "device/hot-module" not in {one.id for one in diagnose(shared)}
    even = tuple(module(f"layer{i}", 0.1, 0.1) for i in range(10))
    assert found(steps(MODEL, modules=even)) == {}
    own = line(47, 0.5 * steps(MODEL).span_s, file=TRAIN, phase="forward", source="return d @ a @ d")
    item = found(steps(MODEL, modules=even, lines=(own,)))["device/hot-module"]
    assert (item.where, item.severity) == (own.place, "info") and "«return d @ a @ d»" in item.message
    assert found(steps(MODEL, modules=even, lines=(replace(own, library="torch.nn.modules.conv"),))) == {}


def memory(peak: float) -> dict[str, Any]:
    return {"memory": [{"device_peak": peak}]}


def test_a_small_batch_leaves_device_and_memory_idle() -> None:
    measured = on_device(busy=0.4, idle={"forward": 2.0}, loaders=(loader(),))
    items = found(measured, notes=memory(4e9))
    assert items["device/batch-too-small"].data["effect"] == "semantic"
    assert items["host/launch-bound"].cost_s_per_step > items["device/batch-too-small"].cost_s_per_step == 0
    assert "device/batch-too-small" not in found(measured, notes=memory(60e9))
    assert "device/batch-too-small" not in found(measured)  # memory unknown


def test_a_batch_on_a_cpu_that_only_calls_is_too_small() -> None:
    use = loader(settings={"batch_size": 1})
    measured = steps(MODEL, facts={"graph": {PER: 1000}}, loaders=(use,))
    assert found(measured)["device/batch-too-small"].severity == "medium"
    assert "device/batch-too-small" not in found(replace(measured, facts={"graph": {PER: 100}}))
    # 250 operations take 200 us each, of which the thread had its core a quarter
    assert "device/batch-too-small" in found(replace(measured, facts={"graph": {PER: 250}}, core_ratio=0.25))


@pytest.mark.parametrize(
    ("updates", "operations", "advice"),
    [
        (100, 1000, "the learning rate scaled along"),
        (25, 1000, "half as many batches in each update"),
        (25, 250, None),  # 200 us each: a step is one of the four backwards of an update
    ],
)
def test_a_batch_that_accumulates_is_made_larger_without_another_training(
    updates: int, operations: int, advice: str | None
) -> None:
    measured = steps(
        MODEL, facts={"graph": {PER: operations}}, loaders=(loader(settings={"batch_size": 1}),),
        num_updates=updates, backwards_per_update=100 / updates,
    )  # fmt: skip
    item = found(measured).get("device/batch-too-small")
    assert (item is not None) == (advice is not None)
    if item is not None:
        assert f"batch_size=2 with {advice}" in item.advice
        assert (item.data["effect"], bool(item.remedies)) == (
            ("semantic", True) if updates == 100 else ("numeric", False)
        )
        recipe = _recipe(asdict(item), None, [])
        assert "batch_size=2)" in recipe and "lr=2 * lr" in recipe


def sized(seconds_of_16: float, *, last: int = 16, epochs: int = 12) -> Steps:
    """Epochs of five batches of 64, 40 ms each, and a last one; no two steps take quite the same."""
    seconds = np.tile([0.04] * 5 + [seconds_of_16], epochs) * np.linspace(0.99, 1.01, 6 * epochs)
    size = np.tile([64.0] * 5 + [float(last)], epochs)
    use = loader(settings={"batch_size": 64})
    return steps({"forward": seconds}, num_steps=6 * epochs, samples=size, loaders=(use,))


def test_a_batch_past_the_knee_is_told_by_the_last_batch_of_each_epoch() -> None:
    alike = shapes([64, 3, 32, 32], [16, 3, 32, 32])
    item = found(sized(0.006), notes=alike)["device/batch-past-the-knee"]
    assert item.severity == "info"
    assert "32 would make 1.15 times the samples" in item.message
    assert item.where == Place(file=TRAIN, line=30, function="main")
    assert "batch_size=32)" in _recipe(asdict(item), None, [])


def test_what_a_batch_past_the_knee_cannot_be_told_from() -> None:
    alike = shapes([64, 3, 32, 32], [16, 3, 32, 32])
    few = sized(0.006, last=3)
    tiny = replace(
        few, samples=np.where(few.samples == 64, 14, 3.0), loaders=(loader(settings={"batch_size": 14}),)
    )
    quiet = [
        (sized(0.02), alike),  # a step takes 13 ms by itself: twice the samples are worth it
        (sized(0.0101), alike),  # as fast, and memory is there
        (sized(0.006, epochs=6), alike),  # six last batches are too few
        (sized(0.016, last=40), alike),  # says nothing about half the size
        (sized(0.006), shapes([64, 90], [64, 70])),  # fewer samples are padded to less
        (sized(0.006), shapes([64, 3, 32, 32])),
        (replace(sized(0.006), facts={"accelerator": True}), alike),
        (tiny, alike),  # seven samples make no gradient
    ]
    for run, notes in quiet:
        assert "device/batch-past-the-knee" not in found(run, notes=notes)
    shaky = sized(0.006)
    shaky.phases[:] *= (1 + 0.6 * np.sin(np.arange(72) ** 2))[:, None]
    assert "device/batch-past-the-knee" not in found(shaky, notes=alike)


def test_checkpointing_with_free_memory() -> None:
    measured = on_device(facts={"modules": [{**NET, "checkpointing": True}]})
    assert "device/recompute-checkpointing" in found(measured, notes=memory(20e9))
    assert "device/recompute-checkpointing" not in found(measured, notes=memory(60e9))
    assert "device/recompute-checkpointing" not in found(on_device(), notes=memory(20e9))


def test_checkpointing_on_a_cpu_costs_the_forwards_within_backward() -> None:
    modules = {"modules": [{**NET, "checkpointing": True}]}
    call = Place(file=TRAIN, line=40, function="main")
    forward = line(8, 2.0, file=TRAIN, function="Block.forward", phase="forward", statement=call)
    again = replace(forward, phase="backward", seconds=1.5)
    own = line(12, 0.9, file=TRAIN, function="Scale.backward", phase="backward", statement=call)
    roomy = {"ram_bytes": 64e9}

    def on_cpu(*lines: LineCost, taken: float = 4e9) -> Finding | None:
        measured = steps(MODEL, facts=modules, lines=lines)
        process = {measured.pid: {"t_s": [1.0, 2.0], "rss_bytes": [taken, taken]}}
        return found(measured, machine=roomy, process_system=process).get("device/recompute-checkpointing")

    item = on_cpu(forward, again, own)
    assert item is not None and item.cost_s_per_step == pytest.approx(0.015)
    assert item.where == again.place and item.remedies == ("no-checkpointing",)
    assert on_cpu(forward, again, taken=40e9) is None
    assert on_cpu(forward, own) is None
    assert on_cpu(forward, replace(again, num_samples=3)) is None


def test_a_busy_device_that_draws_little_power() -> None:
    low = {"gpu0_util_ratio": [0.98] * 8, "gpu0_power_w": [90.0] * 8, "gpu0_power_limit_w": [400.0] * 8}
    assert found(on_device(), system=low)["device/low-intensity"].severity == "info"
    assert "device/low-intensity" not in found(on_device(), system={**low, "gpu0_power_w": [350.0] * 8})
    assert "device/low-intensity" not in found(on_device())


ATTENTION = """\
class Attention(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)
        return scores.softmax(-1) @ v
"""


def test_written_out_attention_is_pointed_at() -> None:
    hot = line(3, 2.0, file=TRAIN, function="Attention.forward", phase="forward", source="scores = ...")
    measured = steps(MODEL, lines=(hot,))
    item = found(measured, sources={TRAIN: ATTENTION})["device/attention-not-fused"]
    assert item.severity == "info"
    assert item.where == replace(hot.place, line=4)
    fused = ATTENTION.replace("scores.softmax(-1) @ v", "F.scaled_dot_product_attention(q, k, v)")
    assert "device/attention-not-fused" not in found(measured, sources={TRAIN: fused})
    brief = replace(measured, lines=(replace(hot, seconds=0.1),))
    assert found(brief, sources={TRAIN: ATTENTION}) == {}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "s = torch.einsum('bqd,bkd->bqk', q, k)\nreturn torch.einsum('bqk,bkd->bqd', s.softmax(-1), v)",
            True,
        ),
        ("s = self.softmax(torch.bmm(q, k))\nreturn torch.bmm(v, s.permute(0, 2, 1))", True),
        (
            "s = q @ k.mT\nif m is not None:\n    s = s + m\nreturn self.drop(F.softmax(s, -1)).matmul(v)",
            True,
        ),
        ("q, k = q.softmax(-1), k.softmax(-2)\nreturn q @ (k.transpose(-2, -1) @ v)", False),
    ],
)
def test_attention_is_a_product_a_softmax_of_it_and_a_product_of_that(body: str, told: bool) -> None:
    source = (
        "class A:\n    def forward(self, q, k, v, m):\n        " + body.replace("\n", "\n        ") + "\n"
    )
    hot = line(3, 2.0, file=TRAIN, function="A.forward", phase="forward", source="...")
    items = found(steps(MODEL, lines=(hot,)), sources={TRAIN: source})
    assert ("device/attention-not-fused" in items) == told
    if told:
        item = items["device/attention-not-fused"]
        assert item.remedies == ("fused-attention",) and item.data["unpriced"]


def test_places_are_the_training_loops_where_no_line_is_known() -> None:
    loop = Place(file=TRAIN, line=5, function="main")
    assert found(on_device(facts=OFF, source_loop=loop))["device/amp-off"].where == loop
