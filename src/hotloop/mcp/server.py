"""The tools and resources of ``hotloop mcp``, with the official SDK of the Model Context Protocol."""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ToolAnnotations
from pydantic import BeforeValidator, Field

from hotloop import __version__
from hotloop.findings import pages
from hotloop.mcp.child import Done, end_all, hotloop

_INSTRUCTIONS: Final = """\
hotloop observes an unmodified PyTorch training command and names what holds it back. The order that works:
1. run(command, evidence=True, steps=200): verdict and findings. 2. brief(run): cause, code, recipe, and what
must stay the same. 3. Write the change. 4. run it again with evidence=True. 5. verify(base, candidate) has to
pass. 6. compare([base, candidate]): believe an interval above 1. what_if(command, [...]) measures a remedy
before anything is written. Never call a change faster without 5 and 6."""

#: A folder of a run is a name in the folder of runs, and no path.
_NAME: Final = re.compile(r"\w[\w.+-]{0,99}")
_ODD: Final = re.compile(r"[^\w.+-]+")
_RUN_KEYS: Final = (
    "verdict", "bottleneck", "run_folder", "exit_code", "num_steps", "step_s", "throughput", "next",
    "remaining", "applied", "patch", "what_if", "warnings",
)  # fmt: skip
_FINDING_KEYS: Final = (
    "id", "severity", "message", "where", "cost_s_per_step", "share", "evidence", "advice", "remedies",
    "next",
)  # fmt: skip
_MOST_FINDINGS: Final = 100
#: Tools that write nothing and start no command of the user's: editors may call them unasked.
_READ: Final = ("report", "brief", "compare", "audit")

_SPLIT: Final = BeforeValidator(lambda words: shlex.split(words) if isinstance(words, str) else words)
Command = Annotated[list[str], _SPLIT, Field(description='a word an item: ["python", "train.py"]')]
Run = Annotated[str, Field(description="name of a run, or the path of its folder")]
Seconds = Annotated[float, Field(gt=0, description="interrupted after so many seconds, and reported")]
Folder = Annotated[str, Field(description="where the command starts, below the server's folder")]
Out = Annotated[str, Field(description="name of the new run (default: time and script)")]
Steps = Annotated[int | None, Field(gt=0, description="end the run cleanly after so many steps")]


class Tools:
    """What agents may call. Trainings run one at a time: two would slow each other down."""

    def __init__(self, root: Path, most_s: float) -> None:
        self._root, self._most_s = root, most_s
        self._runs = (root / "hotloop-runs").resolve()
        self._turn = anyio.Lock()

    async def run(
        self,
        ctx: Context,
        command: Command,
        steps: Steps = None,
        apply: Annotated[list[str], Field(description="remedies: num-workers=4")] = [],  # noqa: B006
        evidence: Annotated[bool, Field(description="record what is computed, for verify")] = False,
        throw_away: Annotated[bool, Field(description="drop what the command writes")] = False,
        cwd: Folder = ".",
        out: Out = "",
        timeout_s: Seconds = 600,
    ) -> dict[str, Any]:
        """Run a training command under observation: verdict, findings, next commands."""
        words = ["--json", *["--throw-away"] * throw_away, "--out", str(self._new(out, command))]
        words += ["--steps", str(steps)] if steps else []
        words += ["--evidence"] * evidence + [word for one in apply for word in ("--apply", one)]
        done = await self._launch(ctx, ["run", *words, "--", *command], cwd, timeout_s)
        found = digest(_json(done))
        found |= {"last_words": done.err} if found["exit_code"] else {}
        return found | {"timed_out": done.timed_out}

    async def what_if(
        self,
        ctx: Context,
        command: Command,
        interventions: Annotated[list[str], Field(description="free-data, or remedies")] = ["free-data"],  # noqa: B006
        budget_s: Annotated[float, Field(gt=0)] = 120,
        throw_away: Annotated[bool, Field(description="drop what the command writes")] = False,
        cwd: Folder = ".",
        out: Out = "",
        timeout_s: Seconds = 600,
    ) -> dict[str, Any]:
        """What each change would give, measured in interleaved blocks of one run of the command."""
        words = ["--json", "--out", str(self._new(out, command)), "--budget", f"{budget_s}s"]
        words += [*["--throw-away"] * throw_away, *map(_word, interventions), "--", *command]
        return _json(await self._launch(ctx, ["what-if", *words], cwd, timeout_s))

    async def report(self, ctx: Context, run: Run, timeout_s: Seconds = 120) -> dict[str, Any]:
        """Verdict and findings of a finished run."""
        return digest(_json(await self._ask(ctx, ["report", self._run(run), "--json"], timeout_s)))

    async def brief(
        self,
        ctx: Context,
        run: Run,
        finding: Annotated[str, Field(description="its id, or its number in the report")] = "1",
        timeout_s: Seconds = 120,
    ) -> str:
        """All that is needed to write the change of a finding, and how to judge it: one page of Markdown."""
        return _text(await self._ask(ctx, ["brief", self._run(run), _word(finding)], timeout_s))

    async def verify(
        self,
        ctx: Context,
        base: Run,
        candidate: Run,
        effect: Annotated[str, Field(pattern="^(exact|numeric|semantic)$")] | None = None,
        timeout_s: Seconds = 300,
    ) -> dict[str, Any]:
        """Whether two runs with evidence compute the same: batches, losses, trained state, and the speed."""
        where = self._run(candidate)
        if not Path(where).is_relative_to(self._runs):
            raise ToolError(f"{candidate} is not in {self._runs}: verify.json would be written beside it")
        words = ["verify", "--json", *(["--effect", effect] if effect else []), self._run(base), where]
        return _json(await self._ask(ctx, words, timeout_s))

    async def compare(
        self,
        ctx: Context,
        runs: Annotated[list[Run], Field(min_length=2, description="the first is the base of the others")],
        timeout_s: Seconds = 300,
    ) -> dict[str, Any]:
        """Runs side by side: speed with a 95 % interval, what moved, which findings are gone or new."""
        return _json(await self._ask(ctx, ["compare", "--json", *map(self._run, runs)], timeout_s))

    async def audit(
        self,
        ctx: Context,
        paths: Annotated[list[str], Field(description="Python files, or folders of them")] = ["."],  # noqa: B006
        configs: Annotated[list[str], Field(description="configurations the code reads")] = [],  # noqa: B006
        timeout_s: Seconds = 120,
    ) -> dict[str, Any]:
        """Read source and configuration for what slows training down; runs nothing."""
        words = [word for one in configs for word in ("--config", _word(one))]
        done = await self._ask(ctx, ["audit", "--json", *words, *map(_word, paths)], timeout_s)
        found = _json(done)
        every = found["findings"]
        return found | {"findings": every[:_MOST_FINDINGS], "num_findings": len(every)}

    def known(self) -> dict[str, str]:
        """The runs in the folder of runs, the newest first, and their verdicts."""
        folders = sorted(self._runs.glob("*/run.json"), key=lambda one: -one.stat().st_mtime)
        return {one.parent.name: _verdict(one.parent) for one in folders}

    async def findings(self, run: str, ctx: Context) -> dict[str, Any]:
        """The resource of a run."""
        return await self.report(ctx, run)

    async def _launch(self, ctx: Context, words: Sequence[str], cwd: str, timeout_s: float) -> Done:
        where = (self._root / cwd).resolve()
        if not where.is_relative_to(self._root):
            raise ToolError(f"{cwd} is not below {self._root}")
        if self._turn.locked():
            raise ToolError("another command is running, and two would slow each other down: wait for it")
        async with self._turn:
            return await self._ask(ctx, words, timeout_s, where)

    async def _ask(
        self, ctx: Context, words: Sequence[str], timeout_s: float, cwd: Path | None = None
    ) -> Done:
        whole_s = min(timeout_s, self._most_s)

        async def say(spent_s: float, last: str) -> None:
            await ctx.report_progress(spent_s, whole_s, last[:200])

        return await hotloop(words, cwd=cwd or self._root, timeout_s=whole_s, say=say)

    def _new(self, name: str, command: Sequence[str]) -> Path:
        """The folder of a new run. Nothing of hotloop's is written elsewhere."""
        script = next((Path(word).stem for word in command if word.endswith(".py")), "run")
        name = name or f"{time.strftime('%Y%m%d-%H%M%S')}-{_ODD.sub('_', script)[:40]}"
        folder = self._runs / name
        if not _NAME.fullmatch(name) or folder.resolve().parent != self._runs:
            raise ToolError(f"{name!r} is no name for a folder in {self._runs}: nothing is written elsewhere")
        return folder

    def _run(self, name: str) -> str:
        """The folder of a run that is there."""
        inside = self._runs / _word(name)
        folder = (inside if inside.exists() else self._root / name).resolve()
        if not folder.exists():
            raise ToolError(f"there is no run {name}; there are: {', '.join(list(self.known())[:20])}")
        return str(folder)


def digest(report: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent needs of report.json, which also holds charts, series and every line of source."""
    phases = {one["name"]: one["s_per_step"] for one in report["phases"] if one["s_per_step"] > 0}
    findings = [{key: one[key] for key in _FINDING_KEYS} for one in report["findings"][:_MOST_FINDINGS]]
    return {key: report[key] for key in _RUN_KEYS} | {"phases_s_per_step": phases, "findings": findings}


def _verdict(folder: Path) -> str:
    try:
        return str(json.loads((folder / "report.json").read_text(encoding="utf-8"))["verdict"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "no report"


def _json(done: Done) -> dict[str, Any]:
    """The document that a verb printed; its own words where it printed none."""
    try:
        return dict(json.loads(_text(done)))
    except ValueError:
        raise ToolError(f"no answer (exit code {done.code}): {done.err}") from None


def _text(done: Done) -> str:
    if done.timed_out and not done.out:
        raise ToolError(f"it took too long and was ended: {done.err}")
    if not done.out:
        raise ToolError(done.err.strip() or f"exit code {done.code}")
    return done.out


def _word(text: str) -> str:
    """A value for a command line, which is no option there."""
    if text.startswith("-"):
        raise ToolError(f"{text!r} is an option and not a value")
    return text


def made(root: Path, most_s: float) -> MCPServer[Any]:
    """The server over a folder of trainings."""
    server: MCPServer[Any] = MCPServer(
        "hotloop", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    tools = Tools(root, most_s)
    for name in ("run", "report", "brief", "what_if", "verify", "compare", "audit"):
        server.add_tool(getattr(tools, name), annotations=ToolAnnotations(read_only_hint=name in _READ))
    server.resource("hotloop://docs", mime_type="application/json")(pages.titles)
    server.resource("hotloop://runs", mime_type="application/json")(tools.known)
    server.resource("hotloop://runs/{run}/findings", mime_type="application/json")(tools.findings)
    server.resource("hotloop://docs/{+page}", mime_type="text/markdown")(_page)
    return server


def _page(page: str) -> str:
    """A guide (tune), the page of a finding (input/slow-sample), or a reference (reference/cli)."""
    if text := pages.named(page):
        return text
    raise ResourceNotFoundError(f"no page named {page}: hotloop://docs lists them")


def serve(root: Path, most_s: float) -> None:
    """Serve on standard input and output until the client goes."""
    signal.signal(signal.SIGTERM, end_all)
    made(root, most_s).run()
