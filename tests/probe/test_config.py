"""Which keys mean what, where they stand, and what a script that reads configuration leaves in its notes."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.running import run_observed, succeeded

from hotloop.probe.observers.configs import line_of
from hotloop.torch_facts import known_values, meaning_of, value_for

NAMES = {
    name: meaning
    for meaning, names in {
        "num_workers": "num_workers workers n_workers nworkers dataloader_workers "
        "dataloader_num_workers TOTAL_WORKERS workers_per_gpu train_workers num-workers numWorkers "
        "loader_workers worker_num nw "
        "data_loader_workers number_of_workers",
        "prefetch_factor": "prefetch_factor prefetch num_prefetch dataloader_prefetch_factor",
        "pin_memory": "pin_memory pin_mem pinned_memory dataloader_pin_memory use_pin_memory",
        "persistent_workers": "persistent_workers persistent dataloader_persistent_workers "
        "keep_workers_alive",
        "batch_size": "batch_size bs bsz batchSize train_batch_size per_device_train_batch_size "
        "samples_per_gpu imgs_per_gpu micro_batch_size batch_size_per_gpu "
        "train_micro_batch_size_per_gpu",
        "cudnn_benchmark": "cudnn_benchmark use_cudnn_benchmark cudnn.benchmark trainer.benchmark",
        "deterministic": "deterministic use_deterministic_algorithms cudnn_deterministic full_determinism",
        "tf32": "tf32 allow_tf32 use_tf32 enable_tf32 matmul_allow_tf32",
        "amp": "amp use_amp AMP_ENABLED amp.enabled fp16 bf16 mixed_precision trainer.precision native_amp",
        "compile": "compile use_torch_compile COMPILE_MODEL torch_compile compile.enabled",
        "gradient_accumulation": "gradient_accumulation_steps accumulate_grad_batches accum_iter grad_accum "
        "accumulate-steps iters_to_accumulate cumulative_iters accumulation_steps",
        "interval": "eval_every eval_interval val_interval save_every checkpoint_freq eval_steps evalEvery "
        "validate_every_n_steps check_val_every_n_epoch eval.every save_checkpoint_every snapshot_period",
        "lr": "lr learning_rate base_lr lr0 optimizer.lr initial_lr",
    }.items()
    for name in names.split()
}


@pytest.mark.parametrize(("key", "meaning"), NAMES.items())
def test_names_people_use(key: str, meaning: str) -> None:
    assert meaning_of(key) == meaning
    assert meaning_of(f"TRAIN.{key}") == meaning


@pytest.mark.parametrize(
    "key",
    [
        "log_interval", "interval", "every", "eval_iters", "validation", "save_dir", "val.num_workers",
        "val_batch_size", "test_workers", "eval.batch_size", "benchmark", "password", "hidden_size",
        "worker_class", "max_workers", "rollout_workers", "batch_norm", "global_batch_size",
        "effective_batch_size", "size", "memory", "lr_decay", "min_lr", "lr_scheduler", "precision_recall",
        "compile_flags", "compiler", "prefetch_to_device", "worker_seed", "accumulate", "image_size",
        "steps", "torch", "mixed", "batch", "learning", "num", "data", "amplitude", "model.size",
        "LIMITS.batch_size", "maxSizes.batch_size", "search_space.lr", "PRESETS.large.num_workers",
    ],
)  # fmt: skip
def test_names_that_mean_something_else(key: str) -> None:
    assert meaning_of(key) is None


@pytest.mark.parametrize(
    ("meaning", "value", "plain"),
    [
        ("num_workers", "8", 8),
        ("num_workers", "auto", None),
        ("num_workers", True, None),
        ("num_workers", "cpu*0.6", None),
        ("pin_memory", "yes", True),
        ("pin_memory", 3, None),
        ("amp", "bf16-mixed", True),
        ("amp", "32", False),
        ("amp", {"loss_scale": 512.0}, True),
        ("lr", "1e-3", 0.001),
        ("lr", [0.1], None),
    ],
)
def test_values_are_taken_only_where_they_can_be_meant(meaning: str, value: Any, plain: Any) -> None:
    assert value_for(meaning, value) == plain


YAML = """\
# num_workers: 1 was too slow
seed: 1
data:
  root: /data
  num_workers: 24   # many
  loader: {batch_size: 8, pin_memory: true}
train:
    AMP_ENABLED: false
    optim:
        lr: 1.0e-3
val:
  batch_size: 3
"""


def test_lines_of_nested_yaml_keys() -> None:
    found = {key: line_of(YAML, key) for key, _, _ in known_values(yaml.safe_load(YAML))}
    assert found == {
        "data.num_workers": 5,
        "data.loader.batch_size": 6,
        "data.loader.pin_memory": 6,
        "train.AMP_ENABLED": 8,
        "train.optim.lr": 10,
    }


TOML = '[train.loader]\nroot = "x"\nworkers = 3\n\n[optim]\nlr = 0.1\n[amp]\nenabled = true\n'


def test_lines_of_toml_keys() -> None:
    assert line_of(TOML, "train.loader.workers") == 3
    assert line_of(TOML, "optim.lr") == 6
    assert line_of(TOML, "amp.enabled") == 8


def test_a_name_that_stands_twice_is_found_behind_the_one_above_it() -> None:
    text = "train = dict(num_workers=4)\n# num_workers: 2\ntest = dict(num_workers=1)\nlr = 0.1\n"
    assert line_of(text, "test.num_workers") == 3
    assert line_of("loader:\n  lr: 1\nlr: 2\n", "lr") == 3
    assert line_of(text, "train.lr.x") is None


keys = st.sampled_from([*(name for name in NAMES if "." not in name), "a", "b", "model"])
trees = st.recursive(
    st.integers(0, 64) | st.booleans() | st.floats(0, 1),
    lambda inner: st.dictionaries(keys, inner, min_size=1, max_size=4),
    max_leaves=12,
).filter(lambda tree: isinstance(tree, dict))


@given(trees)
def test_every_known_key_of_a_written_file_is_found_on_its_line(tree: dict[str, Any]) -> None:
    as_json = json.dumps(tree, indent=1)
    as_yaml = yaml.safe_dump(tree)
    for key, _, _ in known_values(tree):
        name = key.split(".")[-1]
        for text in (as_json, as_yaml):
            line = line_of(text, key)
            assert line is not None
            assert name in text.splitlines()[line - 1]


def test_what_a_script_reads_is_noted_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML)
    (tmp_path / "b.json").write_text(
        '{\n "train": {\n  "batch_size": 16,\n  "password": "secret"\n },\n'
        ' "eval": {"every": 5, "batch_size": 2}\n}'
    )
    (tmp_path / "c.toml").write_text(TOML)
    script = """\
import argparse, json, sys, tomllib
from yaml import safe_load
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--num-workers", "-j", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--secret", default="x")
sub = parser.add_subparsers(dest="command")
train = sub.add_parser("train")
train.add_argument("--lr", type=float, default=0.1)
train.add_argument("--save-every", type=int, default=100)
args = parser.parse_args()
with open("a.yaml") as stream:
    a = safe_load(stream)
with open("b.json") as stream:
    b = json.load(stream)
with open("c.toml", "rb") as stream:
    c = tomllib.load(stream)
json.loads('{"num_workers": 3}')
print(args.num_workers, a["data"]["num_workers"], b["train"]["batch_size"], c["optim"]["lr"])
"""
    observed = run_observed(script, "-j6", "train", "--lr", "0.5", folder=tmp_path)
    assert observed.stdout == "6 24 16 0.1\n"
    found = {
        (Path(note["file"]).name, note["line"], note["key"]): (note["meaning"], note["value"], note["given"])
        for note in observed.notes["config"]
    }
    assert found == {
        ("train.py", 6, "num_workers"): ("num_workers", 6, True),
        ("train.py", 7, "batch_size"): ("batch_size", 32, False),
        ("train.py", 11, "lr"): ("lr", 0.5, True),
        ("a.yaml", 5, "data.num_workers"): ("num_workers", 24, True),
        ("a.yaml", 6, "data.loader.batch_size"): ("batch_size", 8, True),
        ("a.yaml", 6, "data.loader.pin_memory"): ("pin_memory", True, True),
        ("a.yaml", 8, "train.AMP_ENABLED"): ("amp", False, True),
        ("a.yaml", 10, "train.optim.lr"): ("lr", 0.001, True),
        ("train.py", 12, "save_every"): ("interval", 100, False),
        ("b.json", 3, "train.batch_size"): ("batch_size", 16, True),
        ("b.json", 6, "eval.every"): ("interval", 5, True),
        ("c.toml", 3, "train.loader.workers"): ("num_workers", 3, True),
        ("c.toml", 6, "optim.lr"): ("lr", 0.1, True),
        ("c.toml", 8, "amp.enabled"): ("amp", True, True),
    }
    assert "secret" not in json.dumps(observed.notes["config"])


UPDATE = """\
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.zeros(1, 2)).sum().backward()
optimizer.step()
"""


def test_a_word_that_overrides_a_key_of_a_file_is_what_was_configured(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("data:\n  workers: 0\n")
    script = f'import torch, yaml\nyaml.safe_load(open("a.yaml"))\n{UPDATE}'
    observed = run_observed(script, "--set", "data.workers=4", "model.workers=3", folder=tmp_path)
    found = [(note["source"], note["key"], note["value"]) for note in observed.notes["config"]]
    assert found == [("yaml", "data.workers", 0), ("argparse", "data.workers", 4)]


def test_constants_of_configuration_modules_and_classes(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(
        "ROOT = '/data'\nNUM_WORKERS = 24\ndata = dict(\n    bs=4,\n)\nlr = 'x'\n"
    )
    script = f"""\
from dataclasses import dataclass
import torch
import config

class CFG:
    pin_memory = True
    epochs = 3

@dataclass
class TrainConfig:
    num_workers: int = 3

batch_size = 7
{UPDATE}"""
    observed = succeeded(run_observed(script, folder=tmp_path))
    found = {(Path(n["file"]).name, n["line"], n["key"]): n["value"] for n in observed.notes["config"]}
    assert found == {
        ("config.py", 2, "NUM_WORKERS"): 24,
        ("config.py", 4, "data.bs"): 4,
        ("train.py", 6, "CFG.pin_memory"): True,
        ("train.py", 7, "CFG.epochs"): 3,
    }


def test_lines_of_python_values() -> None:
    text = "data = dict(\n    bs=2,\n    val={'bs': 1},\n)\n"
    text += "class CFG:\n    lr: float = 0.1\nCFG2 = {'a': {\n 'lr': 1}}\n"
    assert line_of(text, "data.bs") == 2
    assert line_of(text, "data.val.bs") == 3
    assert line_of(text, "CFG.lr") == 6
    assert line_of(text, "CFG2.a.lr") == 8


def test_what_libraries_keep_for_themselves_is_no_configuration(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "transformers"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(
        "import json\ndef state(name):\n    with open(name) as f:\n        return json.load(f)\n"
    )
    (library / "own.json").write_text('{"batch_size": 1}')
    (tmp_path / "args.json").write_text('{"train_batch_size": 2}')
    (tmp_path / "trainer_state.json").write_text('{"train_batch_size": 3}')
    (tmp_path / "train.json").write_text('{"train_batch_size": 4}')
    (tmp_path / "c.yaml").write_text("num_workers: 5\n")
    script = f"""\
import json, sys
from pathlib import Path
import yaml
sys.path.append({str(tmp_path / "site-packages")!r})
import torch
import transformers

transformers.state("args.json")
for name in ({str(library / "own.json")!r}, "trainer_state.json", "train.json"):
    with open(name) as stream:
        json.load(stream)
yaml.safe_load(Path("c.yaml").read_text())
{UPDATE}"""
    observed = succeeded(run_observed(script, folder=tmp_path))
    found = {(n["value"], Path(n["file"] or "").name, n["reader"]) for n in observed.notes["config"]}
    train = tmp_path / "train.py"
    assert found == {(4, "train.json", f"{train}:11"), (5, "", f"{train}:12")}
    assert observed.notes["files"][0]["files"] == [str(train)]


def test_the_configuration_that_hydra_composed_counts(tmp_path: Path) -> None:
    pytest.importorskip("hydra")
    (tmp_path / "conf" / "data").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text("defaults:\n  - data: large\n  - _self_\nlr: 0.1\n")
    (tmp_path / "conf" / "data" / "large.yaml").write_text("num_workers: 24\nbatch_size: 16\n")
    script = f"""\
import hydra
import torch

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
{textwrap.indent(UPDATE, "    ")}

main()
"""
    observed = succeeded(run_observed(script, "data.batch_size=8", folder=tmp_path))
    assert "disabled" not in observed.notes
    found = {
        (n["source"], Path(n["file"] or "").name, n["line"], n["key"], n["value"])
        for n in observed.notes["config"]
    }
    assert found == {
        ("yaml", "large.yaml", 1, "num_workers", 24),
        ("yaml", "large.yaml", 2, "batch_size", 16),
        ("yaml", "config.yaml", 4, "lr", 0.1),
        ("hydra", "", None, "data.num_workers", 24),
        ("hydra", "", None, "data.batch_size", 8),
        ("hydra", "", None, "lr", 0.1),
        ("argparse", "", None, "data.batch_size", 8),
    }
