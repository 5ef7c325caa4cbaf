"""Watch a training as it goes: a page on this machine with the picture, the camera, and two pauses.

python remote_viewer.py --port 6009              then open the address it prints
python remote_viewer.py --port 6009 --headless   asks for pictures all the time and shows none
"""

import argparse
import io
import json
import math
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image

from network_gui import LENGTH, PATIENCE_S, VIEW, receive

#: Without a page that asks, no pictures are asked for.
UNWATCHED_S = 3.0


def exchange(connection, asked):
    """Send a request; return (what the training says, the picture's bytes)."""
    message = json.dumps(asked).encode()
    connection.sendall(LENGTH.pack(len(message)) + message)
    said = json.loads(receive(connection, *LENGTH.unpack(receive(connection, LENGTH.size))))
    return said, receive(connection, said["num_bytes"])


class Link(threading.Thread):
    """Holds the connection to the training and the newest picture."""

    def __init__(self, host, port, width, height):
        super().__init__(daemon=True)
        self.address, self.size = (host, port), (width, height)
        self.changed = threading.Condition()
        self.view = {**VIEW, "timestep": 0, "paused": False, "do_training": True}
        self.said, self.pixels, self.number = {"state": "connecting"}, b"", 0
        self.watched_s = time.monotonic()

    def run(self):
        while True:
            try:
                with socket.create_connection(self.address, timeout=PATIENCE_S) as connection:
                    # A training that evaluates answers late.
                    connection.settimeout(None)
                    while True:
                        self._step(connection)
            except (OSError, ValueError) as error:
                self._tell({"state": f"no training at {self.address[0]}:{self.address[1]} ({error})"})
                time.sleep(0.5)

    def _step(self, connection):
        with self.changed:
            asked = dict(self.view)
        paused = asked.pop("paused") or time.monotonic() - self.watched_s > UNWATCHED_S
        width, height = (0, 0) if paused else self.size
        said, pixels = exchange(connection, {**asked, "width": width, "height": height})
        self._tell({"state": "paused" if paused else "live", **said}, pixels)

    def _tell(self, said, pixels=b""):
        with self.changed:
            # A page's JSON knows neither NaN nor infinity.
            self.said = {
                key: value if not isinstance(value, float) or math.isfinite(value) else str(value)
                for key, value in said.items()
            }
            if pixels:
                self.pixels, self.number = pixels, self.number + 1
            self.changed.notify_all()

    def newest(self, after):
        """(number, JPEG) of a picture after number ``after``; no JPEG where none comes in a second."""
        self.watched_s = time.monotonic()
        with self.changed:
            self.changed.wait_for(lambda: self.number > after, timeout=1)
            number, pixels = self.number, self.pixels
        if number <= after:
            return number, None
        file = io.BytesIO()
        Image.frombytes("RGB", self.size, pixels).save(file, "JPEG", quality=90)
        return number, file.getvalue()


def handler_of(link):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if self.path == "/":
                return self._send(200, "text/html; charset=utf-8", PAGE.encode())
            if self.path == "/state":
                with link.changed:
                    state = {"view": link.view, "size": link.size, **link.said}
                return self._send(200, "application/json", json.dumps(state).encode())
            name, _, after = self.path.partition("?after=")
            if name != "/frame" or not after.isdecimal():
                return self._send(404, "text/plain", b"there are /, /state and /frame?after=N\n")
            number, picture = link.newest(int(after))
            return self._send(200 if picture else 204, "image/jpeg", picture or b"", number)

        def do_POST(self):
            try:
                length = int(self.headers.get("Content-Length", 0))
                said = json.loads(self.rfile.read(min(length, 1 << 16)))
                view = {key: type(old)(said.get(key, old)) for key, old in link.view.items()}
            except (ValueError, TypeError, AttributeError) as error:
                return self._send(400, "text/plain", f"no view: {error}\n".encode())
            with link.changed:
                link.view = view
            return self._send(204, "text/plain", b"")

        def _send(self, status, kind, body, number=0):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Number", str(number))
            try:
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:  # the page was closed
                self.close_connection = True

        def log_message(self, *_):
            pass

    return Handler


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>heads: live</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 40rem; padding: 0 1rem;
  background: #16181c; color: #e6e6e6 }
#picture { display: block; width: 100%; max-height: 70vh; object-fit: contain;
  touch-action: none; cursor: grab; user-select: none }
label { margin-right: 1rem; white-space: nowrap } #state { font-variant-numeric: tabular-nums }
</style>
<img id="picture" alt="the head as it is now" draggable="false">
<p id="state" role="status">connecting</p>
<p><label><input type="checkbox" id="paused"> pause rendering</label>
<label><input type="checkbox" id="halted"> pause training</label>
<label>timestep <input type="range" id="timestep" min="0" max="0" value="0"></label></p>
<p>Drag to look around, turn the wheel to go near.</p>
<script>
const at = id => document.getElementById(id);
let view = null, number = 0, sending = null;
async function send() {               // at most one on its way; the last one counts
  if (sending) { sending.again = true; return; }
  do {
    sending = { again: false };
    try { await fetch("/view", { method: "POST", body: JSON.stringify(view) }); } catch {}
  } while (sending.again);
  sending = null;
}
function change(part) { if (view) { Object.assign(view, part); send(); } }
at("paused").onchange = () => change({ paused: at("paused").checked });
at("halted").onchange = () => change({ do_training: !at("halted").checked });
at("timestep").oninput = () => change({ timestep: Number(at("timestep").value) });
at("picture").onpointerdown = e => { at("picture").setPointerCapture(e.pointerId); };
at("picture").onpointermove = e => {
  if (view && e.buttons) change({ yaw: view.yaw - e.movementX / 150,
    pitch: Math.max(-1.4, Math.min(1.4, view.pitch + e.movementY / 150)) });
};
at("picture").onwheel = e => {
  if (view) change({ field: Math.max(0.05, Math.min(2, view.field * Math.exp(e.deltaY / 800))) });
  e.preventDefault();
};
const short = value => Number.isFinite(value) && !Number.isInteger(value) ? value.toPrecision(4) : value;
async function watch() {
  for (;;) {
    try {
      const answer = await fetch("/frame?after=" + number);
      number = Number(answer.headers.get("X-Number"));
      if (answer.status === 200) {
        const old = at("picture").src;
        at("picture").src = URL.createObjectURL(await answer.blob());
        await at("picture").decode();
        if (old) URL.revokeObjectURL(old);
      }
      const state = await (await fetch("/state")).json();
      if (!view) {
        view = state.view;
        at("paused").checked = view.paused;
        at("halted").checked = !view.do_training;
        at("timestep").value = view.timestep;
      }
      if (state.num_timesteps) at("timestep").max = state.num_timesteps - 1;
      const known = ["iteration", "num_gaussians", "loss"].filter(key => key in state);
      const words = known.map(key => key.replace("num_", "") + " " + short(state[key]));
      at("state").textContent = state.error || [state.state, ...words].join(", ");
    } catch {
      at("state").textContent = "remote_viewer.py has ended";
      await new Promise(done => setTimeout(done, 1000));
    }
  }
}
watch();
</script></html>
"""


def ask_only(args):
    """Ask for pictures all the time, as a viewer does that nobody looks at."""
    width, height = (0, 0) if args.pause else (args.width, args.height)
    asked = {**VIEW, "timestep": 0, "do_training": True, "width": width, "height": height}
    started, number = None, 0
    with connect(args) as connection:
        try:
            while not args.frames or number < args.frames:
                said, _ = exchange(connection, {**asked, "yaw": number / 20})
                started = started or time.monotonic()
                if "error" in said:
                    return fail(f"the training could not draw: {said['error']}")
                number += 1
        except ConnectionError:
            pass  # the training has ended
        except KeyboardInterrupt:
            pass
    seconds = time.monotonic() - (started or time.monotonic())
    print(json.dumps({"frames": number, "seconds": round(seconds, 3)}))
    return 0 if number else fail("not one picture came")


def connect(args):
    """A connection to the training, which may still be starting."""
    end = time.monotonic() + args.wait
    while True:
        try:
            connection = socket.create_connection((args.host, args.port), timeout=PATIENCE_S)
            connection.settimeout(None)
            return connection
        except OSError as error:
            if time.monotonic() > end:
                words = f"no training at {args.host}:{args.port} ({error}); --wait SECONDS"
                raise SystemExit(fail(words)) from None
            time.sleep(0.1)


def fail(words):
    print(f"remote_viewer.py: {words}", file=sys.stderr)
    return 2


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="of the training")
    parser.add_argument("--port", type=int, default=6009, help="of the training")
    parser.add_argument("--page_port", type=int, default=8080, help="of the page; 0: any that is free")
    parser.add_argument("--width", type=int, default=275)
    parser.add_argument("--height", type=int, default=401)
    parser.add_argument("--headless", action="store_true", help="ask for pictures and show none")
    parser.add_argument("--pause", action="store_true", help="headless: stay connected and want no picture")
    parser.add_argument("--frames", type=int, default=0, help="headless: end after so many; 0: never")
    parser.add_argument("--wait", type=float, default=30, help="headless: seconds to wait for the training")
    args = parser.parse_args(argv)
    if args.headless:
        return ask_only(args)
    link = Link(args.host, args.port, args.width, args.height)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", args.page_port), handler_of(link))
    except (OSError, OverflowError) as error:
        return fail(f"no page at port {args.page_port} ({error}): --page_port names another")
    link.start()
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
