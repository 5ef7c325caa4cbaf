"""``hotloop watch`` as a user meets it: a page in Chromium, a screen, lines, and over ssh."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.monitor.lives import eventually, long, training
from tests.report.chromium import Chromium, in_chromium
from tests.running import SRC

from hotloop.cli.main import main
from hotloop.cli.watch import report_of
from hotloop.compare.expectation import read
from hotloop.monitor.screen import line, render
from hotloop.monitor.snapshot import Watched
from hotloop.monitor.source import states
from hotloop.monitor.web import MOST_WATCHERS, Broadcast, Server

HOSTILE = "<img src=x onerror=document.body.remove()>"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SRC)}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The state of a run of made rows, with its diagnosis."""
    watched = Watched(long(tmp_path_factory.mktemp("state") / "run", 3_000), report_of)
    found = eventually(lambda: (now := watched.snapshot())["diagnosis"] and now)
    return dict(found)


@contextmanager
def served(source: Iterator[dict[str, Any]]) -> Iterator[Server]:
    with Server(Broadcast(source), 0) as server:
        server.broadcast.start()
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


@in_chromium
def test_a_page_follows_a_training_to_its_end(tmp_path: Path) -> None:
    with ExitStack() as stack:
        run = stack.enter_context(training(tmp_path, HOSTILE, HOSTILE))
        command = [sys.executable, "-m", "hotloop", "watch", str(run), "--web", "0"]
        watch = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        stack.callback(watch.communicate)
        stack.callback(watch.terminate)
        assert watch.stdout is not None
        url = watch.stdout.readline().strip()
        browser = stack.enter_context(Chromium())
        browser.visit(url, width=1400)

        def text(selector: str) -> str:
            return str(browser.run(f"document.querySelector({selector!r})?.innerText ?? ''"))

        def steps() -> int:
            return int((text("#figures dd") or "0").replace(",", ""))

        first = eventually(steps)
        eventually(lambda: steps() > first)
        assert "running for" in text("#state") and HOSTILE in text("#command") and text("#name") == HOSTILE
        eventually(lambda: "Input-bound" in text("#verdict"))
        eventually(
            lambda: browser.run("document.querySelectorAll('#chart-throughput path.line').length") == 1
        )
        assert "data wait" in text("#phases")
        (tmp_path / "stop").touch()
        eventually(lambda: "finished after" in text("#state"))
        eventually(lambda: text("#age") == "Diagnosis of the finished run.")
        for width in (1400, 400):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            browser.call("Emulation.setDeviceMetricsOverride", **size)
            assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.problems() == [] and browser.requests() == [url, f"{url}events"]
        assert browser.run("document.querySelectorAll('img').length") == 0
        assert browser.run("document.title") == f"finished: {HOSTILE} · hotloop"


@in_chromium
def test_every_text_of_a_state_stays_text(state: dict[str, Any]) -> None:
    def hostile(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: hostile(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [hostile(one) for one in value]
        return HOSTILE if isinstance(value, str) and key not in ("id", "color") else value

    numbers = {"id": "input/single-process", "share": 0.5, "s_per_step": 0.01}
    finding = {**numbers, "severity": "high", "message": "", "advice": "", "where": "train.py:1"}
    band = {"name": "cpu", "status": "failed", "limit": "< 85%", "words": "", "value": 1.0}
    state = state | {
        "diagnosis": state["diagnosis"] | {"findings": [finding], "expected": [band]},
        "alerts": [{"unix_s": 1e9, "words": ""}],
    }
    with served(iter([hostile(state)])) as server, Chromium() as browser:
        browser.visit(server.url, width=400)
        eventually(lambda: HOSTILE in browser.run("document.body.innerText"))
        assert browser.run("document.querySelectorAll('img, [onerror]').length") == 0
        card = browser.run("document.querySelector('#cards').innerText")
        assert "input/single-process" in card and "10 ms/step" in card and card.count(HOSTILE) == 4
        band_shown = browser.run("document.querySelector('#expected tbody').innerText").split("\t")
        assert band_shown == ["–", HOSTILE, HOSTILE, HOSTILE]
        assert HOSTILE in browser.run("document.querySelector('#alerts li').innerText")
        row = browser.run("document.querySelector('#gpus tbody').innerText").split("\t")
        assert row[1:6] == ["45 %", "12 GiB of 80 GiB", "210 W of 300 W", "61 °C", "1410 MHz"]
        assert browser.run("document.querySelectorAll('#chart-gpu-temperature path.line').length") == 1
        assert browser.problems() == []


def test_only_who_knows_the_token_may_look_and_only_under_its_own_name(state: dict[str, Any]) -> None:
    def ask(path: str, host: str | None = None, method: str = "GET") -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        policy = answer.getheader("Content-Security-Policy") or ""
        connection.close()
        return answer.status, policy

    with served(iter([state])) as server:
        page = server.paths[""]
        status, policy = ask(page)
        assert status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
        assert server.server_address[0] == "127.0.0.1"
        for path in (
            "/",
            "/events",
            page[:-2] + "/",
            page + "events2",
            page + "../x",
            f"{page}?a",
            "/etc/passwd",
        ):
            assert ask(path)[0] == 404, path
        assert ask(page, host=f"evil.example:{server.server_port}")[0] == 421
        assert ask(page, method="POST")[0] == 501


def test_sixty_four_watchers_get_the_same_and_no_more_are_let_in(state: dict[str, Any]) -> None:
    go = [threading.Event() for _ in range(3)]

    def source() -> Iterator[dict[str, Any]]:
        for number, event in enumerate(go):
            event.wait(60)
            yield {**state, "number": number}

    def joined() -> socket.socket:
        one = socket.create_connection(("127.0.0.1", server.server_port), timeout=60)
        head = f"GET {server.paths['events']} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n"
        one.sendall(head.encode())
        return one

    def part(one: socket.socket, upto: bytes) -> bytes:
        data = b""
        while upto not in data:
            piece = one.recv(1 << 16)
            assert piece, data[:80]
            data += piece
        return data

    with served(source()) as server, ExitStack() as stack:
        watchers = [stack.enter_context(joined()) for _ in range(MOST_WATCHERS)]
        assert all(b"200 OK" in part(one, b"\r\n\r\n") for one in watchers)
        assert b"503" in part(stack.enter_context(joined()), b"\r\n\r\n")
        for number, event in enumerate(go):
            event.set()
            first, *others = (part(one, b"\n\n") for one in watchers)
            assert set(others) == {first}
            assert json.loads(first.split(b"data: ")[1])["number"] == number


def test_the_screen_shows_the_state_and_goes_with_q(state: dict[str, Any]) -> None:
    pytest.importorskip("textual")
    from hotloop.monitor.app import Watch

    async def look() -> None:
        app = Watch(iter([state]))
        async with app.run_test(size=(80, 40)) as pilot:
            async with asyncio.timeout(30):
                while "3,000 steps" not in (shown := str(app.query_one("#page").render())):
                    await pilot.pause(0.02)
            assert state["run"]["name"] in shown and state["diagnosis"]["verdict"][:30] in shown
            assert "45 %  12.0/80.0 GiB  210/300 W  61 °C  1410 MHz" in shown
            assert max(map(len, shown.splitlines())) <= 76
            await pilot.resize_terminal(50, 30)
            await pilot.pause()
            assert max(map(len, str(app.query_one("#page").render()).splitlines())) <= 46
            await pilot.press("q")
        assert app.return_code == 0 and app.error is None

    asyncio.run(look())


def test_without_textual_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["watch", str(long(tmp_path / "run", 10))]) == 2
    assert "pip install 'hotloop[watch]'" in capsys.readouterr().err


def test_a_state_is_one_line_under_it_the_verdict_and_control_characters_are_escaped(
    state: dict[str, Any], tmp_path: Path
) -> None:
    first, *rest = line(state).split("\n")
    assert "3,000 steps" in first and state["diagnosis"]["verdict"] == " ".join(map(str.strip, rest))
    watched = Watched(long(tmp_path / "a\x1b[31m\nb", 10), report_of)
    text = "\n".join(one.plain for one in render(watched.snapshot(), 80))
    assert "\x1b" not in text and "a\\x1b[31m\\nb" in text


def test_what_was_expected_is_shown_and_lines_end_with_it(tmp_path: Path, capsys: Any) -> None:
    run = long(tmp_path / "run", 3_000)
    run.joinpath("warnings.jsonl").write_text(
        '{"unix_s": 1e9, "words": "a\\u001b[31m"}\n{"unix_s": 9e99}\n{"un'
    )
    bands = tmp_path / "bands.toml"
    bands.write_text('data_wait = "< 1 s"\nsteps_per_s = "> 1e9"\ngpu_power = "> 85%"\nspeedup = ">= 2x"\n')
    run.joinpath("run.json").write_text(
        json.dumps({**json.loads((run / "run.json").read_text()), "complete": True, "exit_code": 0})
    )
    assert main(["watch", "--expect", str(bands), str(run)]) == 1
    shown = [text.split("  ")[0] for text in capsys.readouterr().out.splitlines()[-4:]]
    assert shown == ["OUTSIDE", "within", "not measured", "not measured"]
    (*_, last) = states(run, partial(report_of, asked=read(bands)))
    text = "\n".join(one.plain for one in render(last, 80))
    assert "OUTSIDE       steps_per_s" in text and "a\\x1b[31m" in text and len(last["alerts"]) == 1
    assert main(["watch", "--expect", str(bands), "there:runs/1"]) == 2


def test_a_run_on_another_machine_is_watched_over_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, words in (
        ("ssh", 'shift 2; exec sh -c "$*"'),
        ("hotloop", f'exec {sys.executable} -m hotloop "$@"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{words}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    run = long(tmp_path / "a 'run'", 500)
    source = states(f"ana@there:{run}", report_of)
    assert next(source)["steps"]["count"] == 500
    source.close()  # type: ignore[attr-defined]
