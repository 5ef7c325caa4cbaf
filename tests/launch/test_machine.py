from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hotloop import cgroups
from hotloop.launch import machine, mounts
from hotloop.launch.machine import is_visible


def test_facts_are_plain_json_and_name_the_parts_the_rules_read() -> None:
    found = machine.facts()
    assert json.loads(json.dumps(found)) == found
    assert 0 < found["cores"] <= os.cpu_count()
    assert found["ram_bytes"] > 1 << 28
    assert found["storage"]["kind"] in {"nvme", "ssd", "rotational", "virtual", "network", "tmpfs", "unknown"}
    assert isinstance(found["gpus"], list)


def test_the_tightest_memory_limit_counts_and_no_limit_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("job", "2147483648"), ("user", "max"), ("v1", "9223372036854771712")):
        (tmp_path / name).mkdir()
        file = "memory.limit_in_bytes" if name == "v1" else "memory.max"
        (tmp_path / name / file).write_text(text)
    folders = [tmp_path / name for name in ("job", "user", "v1")]
    monkeypatch.setattr(cgroups, "folders", lambda controller, root: folders)
    assert cgroups.memory() == (2 << 30, 0)
    folders.pop(0)
    assert cgroups.memory() is None


MOUNTS = r"""1 0 0:1 / / rw - rootfs rootfs rw
2 1 8:1 / / rw - ext4 /dev/sda1 rw
3 2 0:2 / /data rw - nfs4 nas:/export rw
4 3 8:2 / /data/my\040fast rw - xfs /dev/nvme0n1 rw
5 2 0:3 / /dev/shm rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "mount", "filesystem"),
    [
        ("/home/u", "/", "ext4"),
        ("/data/set", "/data", "nfs4"),
        ("/data/my fast/x", "/data/my fast", "xfs"),
        ("/database", "/", "ext4"),
        ("/dev/shm/x", "/dev/shm", "tmpfs"),
    ],
)
def test_the_mount_of_a_path(path: str, mount: str, filesystem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_reachable", lambda path: True)
    found = mounts.mount_of(Path(path), mounts.mounts(MOUNTS))
    assert found is not None
    assert (str(found.path), found.kind) == (mount, filesystem)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, True), ("0,1", True), ("0", False), ("", False), ("-1", False), ("GPU-ab", True),
        ("GPU-cd", False), ("-1,1", False),
    ],
)  # fmt: skip
def test_cuda_visible_devices(visible: str | None, expected: bool) -> None:
    assert is_visible(1, "GPU-abcd", visible) is expected
