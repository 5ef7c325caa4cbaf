"""What the training thread does with sockets: serving a viewer, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import run_observed

SCRIPT = """
    import asyncio, os, select, socket, subprocess, sys, threading, time
    import torch

    def listening(kind=socket.AF_INET, at=("127.0.0.1", 0)):
        listener = socket.socket(kind)
        listener.bind(at)
        listener.listen()
        return listener

    def answering():
        # another thread answers; what it does is not recorded
        listener = listening()
        def answer():
            connection, _ = listener.accept()
            while connection.recv(64):
                connection.sendall(b"ok")
        threading.Thread(target=answer, daemon=True).start()
        return socket.create_connection(listener.getsockname())

    # Each makes the function that a step calls.

    def event_loop():
        return lambda: asyncio.run(asyncio.sleep(0.001))

    def socket_pair():
        one, other = socket.socketpair()
        other.setblocking(False)
        def step():
            one.send(b"x")
            select.select([other], [], [], 0)
            other.recv(8)
        return step

    def command():
        return lambda: subprocess.run([sys.executable, "-c", ""], capture_output=True)

    def pipe():
        reading, _ = os.pipe()
        return lambda: select.select([reading], [], [], 0)

    def asks():
        client = answering()
        def step():
            client.sendall(b"loss")
            select.select([client], [], [], 5)
            client.recv_into(bytearray(64))
        return step

    def asks_in_an_event_loop():
        client = answering()
        client.setblocking(False)
        async def ask():
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, b"loss")
            await loop.sock_recv(client, 64)
        return lambda: asyncio.run(ask())

    def accepts():
        listener = listening()
        listener.setblocking(False)
        connections = []
        def step():
            try:
                connections.append(listener.accept()[0])
            except BlockingIOError:
                pass
        return step

    def selects():
        listener = listening(socket.AF_UNIX, "viewer.sock")
        return lambda: select.select([listener], [], [], 0.001)

    def serves():
        listener = listening()
        client = socket.create_connection(listener.getsockname())
        def step(served=[]):
            client.send(b"draw")
            if not served:
                served.append(listener.accept()[0])
            served[0].recv(8)
        return step

    def serves_what_came_before():
        listener = listening()
        client = socket.create_connection(listener.getsockname())
        accepted = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept()[0]))
        thread.start()
        thread.join()
        def step():
            client.send(b"draw")
            accepted[0].recv(8)
        return step

    step = globals()[sys.argv[1]]()
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        net(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        step()
    print("done")
"""


@pytest.mark.parametrize(
    "what",
    [
        "event_loop",
        "command",
        "asks",
        *(
            pytest.param(what, marks=pytest.mark.nightly)
            for what in ("socket_pair", "pipe", "asks_in_an_event_loop")
        ),
    ],
)
def test_what_nobody_else_asks_for_is_not_recorded_as_serving(tmp_path: Path, what: str) -> None:
    observed = run_observed(SCRIPT, what, folder=tmp_path)
    assert observed.stdout.split() == ["done"], observed.stderr
    assert "disabled" not in observed.notes
    assert observed.of("socket") == []


@pytest.mark.parametrize(
    ("what", "calls"), [("accepts", 4), ("selects", 4), ("serves", 1 + 4), ("serves_what_came_before", 4)]
)
def test_what_is_served_is_recorded(tmp_path: Path, what: str, calls: int) -> None:
    observed = run_observed(SCRIPT, what, folder=tmp_path)
    assert observed.stdout.split() == ["done"], observed.stderr
    assert "disabled" not in observed.notes
    assert len(observed.of("socket")) == calls
    assert all(observed.line(row) for row in observed.of("socket"))
