"""Installing and undoing leaves every object of torch, and of what else we patch, where it was."""

from __future__ import annotations

from pathlib import Path

from tests.running import run_observed

SCRIPT = """
    import sys, gc, socket, select, selectors, logging, argparse, json, signal
    import torch, torch.utils.data, torch.distributed, torch.utils.checkpoint
    import hotloop.probe.install as install

    PACKAGES = ("torch", "socket", "select", "selectors", "logging", "argparse", "json", "signal", "tqdm")
    OWN = ("__dict__", "__weakref__", "__annotations__", "__warningregistry__", "__doc__", "next_id")

    def things():
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in PACKAGES:
                yield name, module
                for value in list(vars(module).values()):
                    if isinstance(value, type) and not value.__module__.startswith("hotloop"):
                        yield f"{value.__module__}.{value.__qualname__}", value

    def snapshot():
        found = {}
        for name, thing in things():
            try:
                members = dict(vars(thing))
            except TypeError:
                continue
            for key, value in members.items():
                if key not in OWN:
                    found[name, key] = value
        return found

    before, callbacks, paths = snapshot(), list(gc.callbacks), list(sys.meta_path)
    probe = install.install(torch, sys.argv[1], start_ns=0, import_start_ns=0)
    during = snapshot()
    changed = [key for key, value in before.items() if key in during and during[key] is not value]
    probe.hooks.undo()
    after = snapshot()
    wrong = [key for key, value in before.items() if after.get(key) is not value]
    owners = {key[0] for key in before}
    new = [key for key in set(after) - set(before) if key[0] in owners and type(after[key]) is not type(sys)]
    print(len(changed) > 30, wrong, new)
    print(gc.callbacks == callbacks, [p for p in sys.meta_path if p not in paths])
"""


def test_undo_restores_identical_objects_everywhere(tmp_path: Path) -> None:
    raw = tmp_path / "other"
    raw.mkdir()
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    done = run_observed(SCRIPT, str(raw), folder=tmp_path, observed=False, env=env, python=("-Wignore",))
    assert done.stderr == ""
    assert done.stdout == "True [] []\nTrue []\n"
