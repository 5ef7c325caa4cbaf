"""``hotloop mcp`` as an editor meets it: the SDK's own client over stdio, on a real training."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import time
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.running import SRC
from tests.waiting import waiting

from hotloop.cli.main import parser_of
from hotloop.findings.pages import named

if TYPE_CHECKING:
    from mcp.client.client import Client  # half a second: not for every process that collects tests

SCRIPT = waiting(160, 0.004, batch_size=8)
SLEEPING = """
import os, time
with open("pid", "w") as file:
    file.write(str(os.getpid()))
time.sleep(99)
"""


def served(root: Path, talk: Callable[[Client], Awaitable[None]], *options: str) -> None:
    """Talk to a server over ``root`` by standard input and output."""
    pytest.importorskip("mcp")
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def main() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "hotloop", "mcp", "--root", str(root), *options],
            env={"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        with anyio.fail_after(120), Path(os.devnull).open("w") as nowhere:
            async with Client(stdio_client(server, errlog=nowhere)) as client:
                await talk(client)

    anyio.run(main)


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool answers: a document, or the words of a page or of a refusal."""
    result = await client.call_tool(tool, arguments)
    text = "".join(one.text for one in result.content)
    return text if result.is_error or tool == "brief" else json.loads(text)


@pytest.mark.nightly
def test_an_agent_diagnoses_writes_the_recipe_and_proves_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    async def talk(client: Client) -> None:
        base = await call(client, "run", command=[sys.executable, "train.py"], evidence=True, out="base")
        assert base["bottleneck"] == "input" and base["run_folder"] == str(tmp_path / "hotloop-runs" / "base")
        (at,) = (i for i, one in enumerate(base["findings"], 1) if one["id"] == "input/single-process")
        brief = await call(client, "brief", run="base", finding=str(at))
        assert "num_workers=" in brief and "batch_size=8, " in brief

        copy = tmp_path / "copy"  # the agent: it writes the recipe into a copy
        copy.mkdir()
        shutil.copy(tmp_path / "train.py", copy)
        text = SCRIPT.replace("batch_size=8", "batch_size=8, num_workers=2")
        (copy / "train.py").write_text(text)
        again = {"command": [sys.executable, "train.py"], "cwd": "copy", "evidence": True, "out": "changed"}
        changed = await call(client, "run", **again)
        assert not changed["exit_code"]
        assert "input/single-process" not in {one["id"] for one in changed["findings"]}
        verdict = await call(client, "verify", base="base", candidate="changed", effect="exact")
        assert verdict["passed"], verdict
        compared = await call(client, "compare", runs=["base", "changed"])
        assert compared["comparisons"][0]["ratio"] > 1.2
        read = await client.read_resource("hotloop://runs/changed/findings")
        assert json.loads(read.contents[0].text)["num_steps"] == changed["num_steps"]
        assert not (tmp_path / "copy" / "hotloop-runs").exists()

    served(tmp_path, talk)


def test_tools_are_bounded_cancelled_and_refuse_to_write_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLEEPING)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "hotloop-runs").mkdir()
    (tmp_path / "hotloop-runs" / "link").symlink_to(tmp_path / "elsewhere")

    def alive() -> bool:
        return Path("/proc", (tmp_path / "pid").read_text()).exists()

    async def talk(client: Client) -> None:
        sleeping = {"command": [sys.executable, "train.py"]}
        assert {one.name for one in (await client.list_tools()).tools} == {
            "run", "report", "brief", "what_if", "verify", "compare", "audit"
        }  # fmt: skip
        for name in ("../out", "/tmp/out", "..", "a/b", "link"):
            assert "nothing is written elsewhere" in await call(client, "run", **sleeping, out=name)
        assert "not below" in await call(client, "run", **sleeping, cwd="..")
        assert "is not in" in await call(client, "verify", base="elsewhere", candidate="elsewhere")
        assert "is an option" in await call(client, "audit", paths=["--sarif=x"])
        assert "there is no run nothing" in await call(client, "report", run="nothing")
        begun_s = time.monotonic()
        typed = shlex.join(sleeping["command"])
        done = await call(client, "run", command=typed, timeout_s=2, out="bounded")
        assert done["timed_out"] and done["exit_code"] and "KeyboardInterrupt" in done["last_words"]
        assert time.monotonic() - begun_s < 20 and not alive()
        (tmp_path / "pid").unlink()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: call(client, "run", **sleeping, out="cancelled"))
            while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
                await anyio.sleep(0.1)
            assert alive()
            assert "another command" in await call(client, "run", **sleeping)
            group.cancel_scope.cancel()
        with anyio.fail_after(10):
            while alive():
                await anyio.sleep(0.1)
        assert "tune" in json.loads((await client.read_resource("hotloop://docs")).contents[0].text)
        page = await client.read_resource("hotloop://docs/input/slow-sample")
        assert "input/slow-sample" in page.contents[0].text
        assert "cancelled" in json.loads((await client.read_resource("hotloop://runs")).contents[0].text)

    served(tmp_path, talk)


def test_what_the_page_registers_can_be_started() -> None:
    page = named("agents")
    (codex,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    servers = [tomllib.loads(codex)["mcp_servers"]]
    for text in re.findall(r"```json\n(.*?)```", page, re.S):
        servers += json.loads(text).values()
    assert len(servers) == 3
    for one in servers:
        parser, _ = parser_of(["mcp"])
        assert parser.parse_args(one["hotloop"]["args"]).verb == "mcp"
