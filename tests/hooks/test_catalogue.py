"""docs/reference/patches.md is what is really patched: nothing more, nothing less."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.running import run_observed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "patches.md"
ROWS = re.findall(r"^\| (`.*?) \| (.*?) \| .*? \| .+ \|$", PAGE.read_text(), re.M)

SCRIPT = """
    import importlib, json
    modules = "torch torch.utils.checkpoint torch.utils.tensorboard torch.distributed.checkpoint tqdm " \\
              "argparse json yaml tomllib rich.progress matplotlib.figure " \\
              "matplotlib.backends.backend_agg hotloop.feed.engine hotloop.feed.cache.cache " \\
              "hotloop.feed.saving"
    for name in modules.split():
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    from hotloop.probe.install import current
    found = []
    for owner, name, _, _ in current().hooks._patched:
        is_module = type(owner).__name__ == "module"
        path = owner.__name__ if is_module else f"{owner.__module__}.{owner.__qualname__}"
        found.append([path, name])
    print(json.dumps(found))
"""
#: Packages that are not part of the test environment, or not of every platform's Python.
ELSEWHERE = {"tensorboardX", "safetensors", "wandb", "mlflow", "comet_ml", "aim", "hydra"}


def test_the_catalogue_lists_what_is_patched(tmp_path: Path) -> None:
    done = run_observed(SCRIPT, folder=tmp_path, env={"HOTLOOP_ACCELERATOR": "1", "HOTLOOP_EVIDENCE": "1"})
    patched = {tuple(entry) for entry in json.loads(done.stdout)}
    listed = {(owner.strip("`"), name) for owner, names in ROWS for name in re.findall("`(.*?)`", names)}
    assert patched - listed == set()
    missing = {(owner, name) for owner, name in listed - patched if owner.split(".")[0] not in ELSEWHERE}
    assert missing <= {("rich.live.Live", "refresh")}
