"""The viewers of the heads workload: real sockets, real processes, a real browser."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.report.chromium import Chromium, in_chromium
from tests.workloads.scripts import Modules

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("scipy")

import numpy as np
import torch
from PIL import Image

FOLDER = Path(__file__).parents[2] / "workloads" / "heads"
MODULES = (
    "rotation", "tiles", "raster", "rig", "ply", "sh", "gaussians", "network_gui", "scene", "data",
    "remote_viewer", "local_viewer",
)  # fmt: skip
ASKED = {"width": 6, "height": 4, "timestep": 0, "do_training": True}


@pytest.fixture(params=["NetworkGui", "ThrottledGui"])
def gui(request: pytest.FixtureRequest, modules: Modules) -> Iterator[Any]:
    """A server of each kind, on a port of its own."""
    with serving(modules, request.param) as made:
        yield made


@contextmanager
def serving(modules: Modules, kind: str) -> Iterator[Any]:
    rate = {"frames_per_second": 1e6} if kind == "ThrottledGui" else {}
    made = getattr(modules["network_gui"], kind)(port=0, **rate)
    yield made
    made.close()


class Loop(threading.Thread):
    """A training loop that does nothing but poll."""

    def __init__(self, gui: Any, render: Callable[[Any], torch.Tensor] | None = None) -> None:
        super().__init__(daemon=True)
        self.gui, self.render = gui, render or grey
        self.iteration, self.ended = 0, False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ended:
                self.iteration += 1
                self.gui.poll(self.render, {"iteration": self.iteration, "num_timesteps": 3})
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Loop:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self.join(30)
        assert not self.is_alive() and self.failure is None, self.failure

    def goes_on(self) -> bool:
        """Whether ten more iterations come."""
        before, end = self.iteration, time.monotonic() + 30
        while self.iteration < before + 10 and time.monotonic() < end:
            time.sleep(0.001)
        return self.iteration >= before + 10


def grey(request: Any) -> torch.Tensor:
    return torch.full((3, request.height, request.width), 0.5)


def connect(gui: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gui.port), timeout=30)


def ask(modules: Modules, connection: socket.socket, **parts: Any) -> tuple[dict[str, Any], bytes]:
    answer: tuple[dict[str, Any], bytes] = modules["remote_viewer"].exchange(connection, {**ASKED, **parts})
    return answer


# -- the server in the loop ---------------------------------------------------------------------------------


def test_a_picture_as_it_was_drawn(modules: Modules, gui: Any) -> None:
    def render(request: Any) -> torch.Tensor:
        rows = torch.arange(request.height).float()[:, None].expand(-1, request.width)
        return torch.stack([rows / 255, rows * 0 - 1, rows * 0 + 2])

    with Loop(gui, render), connect(gui) as connection:
        said, pixels = ask(modules, connection)
    assert (said["width"], said["height"], said["num_timesteps"]) == (6, 4, 3) and said["iteration"] > 0
    picture = np.frombuffer(pixels, np.uint8).reshape(4, 6, 3)
    assert (picture[..., 0] == np.arange(4)[:, None]).all()
    assert (picture[..., 1] == 0).all() and (picture[..., 2] == 255).all()


def test_the_camera_looks_at_the_face_from_the_front(modules: Modules, gui: Any) -> None:
    seen = []

    def render(request: Any) -> torch.Tensor:
        seen.append(request)
        return grey(request)

    with Loop(gui, render), connect(gui) as connection:
        ask(modules, connection, yaw=0.0, distance=2.0, field=0.5)
        ask(modules, connection, yaw=np.pi / 2, timestep=2)
    front, side = (request.world_to_camera for request in seen)
    point = np.array([0.1, 0.2, 0.3, 1])  # left of the head, up, in front of it
    np.testing.assert_allclose(front @ point, [0.1, -0.2, 1.7, 1], atol=1e-6)
    np.testing.assert_allclose(side @ point, [-0.3, -0.2, 0.9, 1], atol=1e-6)  # from the head's left
    assert seen[0].intrinsics[1, 1] * 0.5 / 2.0 == pytest.approx(4)  # half a metre is the picture's height
    assert seen[1].timestep == 2


def test_the_project_draws_in_every_iteration_the_cured_one_now_and_then(modules: Modules) -> None:
    def iterations(kind: str) -> int:
        """How many go by while 20 pictures are taken."""
        with serving(modules, kind) as gui:
            gui.interval_s = 0.02
            with Loop(gui), connect(gui) as connection:
                asked = [ask(modules, connection)[0]["iteration"] for _ in range(21)]
        return int(asked[-1] - asked[0])

    assert iterations("NetworkGui") == 20
    assert iterations("ThrottledGui") > 100  # an iteration of nothing is far shorter than 20 ms


def test_training_waits_while_the_viewer_says_so(modules: Modules, gui: Any) -> None:
    with Loop(gui) as loop, connect(gui) as connection:
        at = [ask(modules, connection, do_training=False)[0]["iteration"] for _ in range(5)]
        assert len(set(at)) == 1 and loop.iteration == at[0]
        ask(modules, connection)
        assert ask(modules, connection, do_training=False)[0]["iteration"] > at[0]
        connection.close()  # gone while training waits for it
        assert loop.goes_on()


def test_the_cured_server_does_not_wait_for_a_silent_viewer(modules: Modules) -> None:
    with serving(modules, "ThrottledGui") as gui, Loop(gui) as loop, connect(gui) as connection:
        connection.sendall(b"\x40\x00")
        assert loop.goes_on()
        assert loop.goes_on() and gui.connection is not None


def test_training_goes_on_where_the_port_is_taken(
    modules: Modules, gui: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    second = type(gui)(port=gui.port)
    said = capsys.readouterr().err
    assert said.startswith(f"no viewer at 127.0.0.1:{gui.port} (") and "--port names another" in said
    second.poll(grey)
    second.close()
    type(gui)(port=70_000).poll(grey)
    assert "no viewer at 127.0.0.1:70000" in capsys.readouterr().err


# -- the viewers as programs --------------------------------------------------------------------------------

TRAINING = """
import sys, time, torch
sys.path.insert(0, {folder!r})
from network_gui import NetworkGui
gui = NetworkGui(port=0)
print(gui.port, flush=True)
iteration = 0
def render(request):
    picture = torch.zeros(3, request.height, request.width)
    picture[:, :, : request.width // 2] = (1 + float(request.world_to_camera[0, 0])) / 2
    picture[0] = request.timestep / 2
    return picture
while True:
    iteration += 1
    loss = torch.tensor(float("nan"))
    gui.poll(render, {{"iteration": iteration, "num_gaussians": 320, "num_timesteps": 3, "loss": loss}})
    time.sleep(0.005)
"""


@contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *words]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        assert "Traceback" not in running.communicate(timeout=30)[1]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a training with a server, in a process of its own."""
    with program("-c", TRAINING.format(folder=str(FOLDER))) as running:
        assert running.stdout
        yield int(running.stdout.readline())


def headless(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "remote_viewer.py"), "--headless", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_viewer_without_a_screen(port: int) -> None:
    for more in ((), ("--pause",)):
        done = headless("--port", str(port), "--frames", "5", *more)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["frames"] == 5
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and nobody listens
        nobody = free.getsockname()[1]
        done = headless("--port", str(nobody), "--wait", "0")
    assert done.returncode == 2 and done.stdout == ""
    assert f"remote_viewer.py: no training at 127.0.0.1:{nobody} (" in done.stderr


def wait_in(browser: Chromium, condition: str) -> None:
    """Until a JavaScript condition holds in the page."""
    browser.run(
        "new Promise((done, fail) => { const end = Date.now() + 30000; const look = () => "
        f"({condition}) ? done() : Date.now() > end ? fail(Error(document.body.innerText)) : "
        "setTimeout(look, 20); look(); })"
    )


@pytest.fixture
def browser() -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


PIXEL = """
function pixel() {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.drawImage(document.getElementById("picture"), 0, 0);
  return canvas.getImageData(5, 5, 1, 1).data;
}
"""
#: The iterations after the request that was on its way has been answered, and a few pictures later.
WHILE_HALTED = """
(async () => {
  const state = async () => (await fetch("/state")).json();
  while ((await state()).view.do_training) await new Promise(done => setTimeout(done, 10));
  let number = 0;
  const pictures = async count => {
    for (; count; count--) number = (await fetch("/frame?after=" + number)).headers.get("X-Number");
    return (await state()).iteration;
  };
  return [await pictures(4), await pictures(4)];
})()
"""


@in_chromium
def test_the_page_shows_the_training_and_pauses_it(browser: Chromium, port: int) -> None:
    viewer = str(FOLDER / "remote_viewer.py")
    with program(
        viewer, "--port", str(port), "--page_port", "0", "--width", "60", "--height", "40"
    ) as running:
        assert running.stdout
        browser.events.clear()
        browser.call("Page.navigate", url=running.stdout.readline().strip())
        wait_in(browser, "document.getElementById('picture')?.naturalWidth === 60")
        state = "document.getElementById('state').textContent"
        wait_in(browser, f"/^live, iteration \\d+, gaussians 320, loss nan$/.test({state})")
        assert browser.run("document.getElementById('timestep').max") == "2"

        browser.run(PIXEL)
        colour = "pixel()"
        assert browser.run(f"{colour}[1]") > 250  # from the front
        at = browser.run("(r => [r.x + r.width / 2, r.y + r.height / 2])"
                         "(document.getElementById('picture').getBoundingClientRect())")  # fmt: skip
        for kind, x, buttons in (("Pressed", 0, 1), ("Moved", 160, 1), ("Released", 160, 0)):
            browser.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=at[0] + x, y=at[1], button="left",
                         buttons=buttons, clickCount=1)  # fmt: skip
        wait_in(browser, f"{colour}[1] < 220")  # turned aside
        browser.run("(t => { t.value = 2; t.oninput(); })(document.getElementById('timestep'))")
        wait_in(browser, f"{colour}[0] > 250")

        browser.run("document.getElementById('halted').click()")
        first, last = browser.run(WHILE_HALTED)
        assert first == last
        browser.run("document.getElementById('halted').click(); document.getElementById('paused').click()")
        wait_in(browser, f"{state}.startsWith('paused, iteration')")
        number = browser.run("fetch('/frame?after=0').then(a => a.headers.get('X-Number'))")
        assert browser.run("fetch('/frame?after=" + number + "').then(a => a.status)") == 204
        assert browser.run("fetch('/view', {method: 'POST', body: '[1'}).then(a => a.status)") == 400
        problems = [words for words in browser.problems() if "400" not in words]
        assert problems == []
        browser.call("Page.navigate", url="about:blank")  # in the middle of a request


# -- a trained head -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(modules: Modules, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PLY with what lies beside it: one red Gaussian per face."""
    folder = tmp_path_factory.mktemp("trained")
    rig = modules["rig"].Rig.make(162)
    gaussians = modules["gaussians"].Gaussians.one_per_face(rig.faces)
    with torch.no_grad():
        gaussians.features_dc[:] = torch.tensor([1.5, -1.5, -1.5])
        gaussians.opacity[:] = 4
    modules["gaussians"].save_ply(folder / "point_cloud.ply", gaussians)
    modules["gaussians"].save_ply(folder / "in_world.ply", gaussians, (rig.template, rig.faces))
    rig.save(folder / "rig.npz")
    shapes = {"expr": 100, "rotation": 3, "neck_pose": 3, "jaw_pose": 3, "eyes_pose": 6, "translation": 3}
    moving = {name: np.zeros((2, size), np.float32) for name, size in shapes.items()}
    still = {"shape": np.zeros(300, np.float32), "static_offset": np.zeros((1, 162, 3), np.float32)}
    np.savez(folder / "flame_param.npz", **moving, **still)
    return folder


@in_chromium
def test_a_turn_around_a_trained_head(browser: Chromium, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "turn"
    size = ("--width", "48", "--height", "64", "--num_frames", "6")
    command = [sys.executable, str(FOLDER / "local_viewer.py"), "--out", str(out), *size]
    ply = str(trained / "point_cloud.ply")
    done = subprocess.run([*command, "--point_path", ply], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out / "index.html")
    names = [f"{number:03d}.png" for number in range(6)]
    assert sorted(path.name for path in out.iterdir()) == [*names, "index.html"]
    pictures = [np.array(Image.open(out / name)).astype(int) for name in names]
    for picture in pictures:
        assert picture.shape == (64, 48, 3) and (picture[0, 0] == 0).all()
        red, green, _ = picture[32, 24]
        assert red > 150 and green < 60
    assert (abs(pictures[0] - pictures[2]) > 30).any()

    browser.open(out / "index.html")
    shown = "[...document.images].findIndex(image => !image.hidden)"
    assert browser.run("document.images.length") == 6 and browser.run(shown) == 0
    assert browser.run("document.images[0].naturalWidth") == 48
    browser.run("(t => { t.value = 4; t.oninput(); })(document.getElementById('turn'))")
    assert browser.run(shown) == 4
    browser.run("document.getElementById('play').click()")
    wait_in(browser, f"{shown} === 1")
    assert browser.problems() == []
    assert all(url.startswith(("file:", "data:")) for url in browser.requests())


def test_a_trained_head_that_cannot_be_shown(
    modules: Modules, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ply = tmp_path / "point_cloud.ply"

    def refused(*options: str) -> str:
        command = ["--point_path", str(ply), "--num_frames", "1", "--width", "8", "--height", "8", *options]
        assert modules["local_viewer"].main(command) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("local_viewer.py: ")
        return said.err

    assert "point_cloud.ply" in refused()
    shutil.copy(trained / "point_cloud.ply", tmp_path)
    assert "rig.npz is missing" in refused()
    shutil.copy(trained / "rig.npz", tmp_path)
    assert "flame_param.npz is missing" in refused()
    shutil.copy(trained / "flame_param.npz", tmp_path)
    assert "--timestep 2: " in refused("--timestep", "2")
    assert "File exists" in refused("--out", str(ply))
    ply.write_bytes(ply.read_bytes()[:3000])
    assert "point_cloud.ply is cut off" in refused()
    with pytest.raises(SystemExit):
        refused("--num_frames", "0")
    assert "--num_frames 0: must be above 0" in capsys.readouterr().err
