"""The server of the live viewer, polled from the training loop: no thread, one client at a time.

A request is 4 bytes (its length, little-endian) and JSON: width, height (0 x 0: no picture wanted), timestep,
yaw, pitch, distance, field (metres seen from top to bottom at that distance), do_training. The answer is 4
bytes and JSON (width, height, what the loop says about itself, or error), then height x width x 3 bytes.
"""

import json
import math
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass

import numpy as np

LENGTH = struct.Struct("<I")
MAX_REQUEST_BYTES, MAX_SIDE = 1 << 16, 4096
#: A client that is silent for so long is let go.
PATIENCE_S = 5.0
#: The view a request has that says nothing else.
VIEW = {"yaw": 0.0, "pitch": 0.0, "distance": 1.0, "field": 0.38}


def orbit(yaw, pitch, distance, centre=(0.0, 0.0, 0.0)):
    """World to camera (4, 4) of a camera around ``centre``, OpenCV's axes; at yaw 0 it faces the face."""
    away = np.array([math.sin(yaw) * math.cos(pitch), math.sin(pitch), math.cos(yaw) * math.cos(pitch)])
    right = np.array([math.cos(yaw), 0, -math.sin(yaw)])
    turn = np.stack([right, np.cross(-away, right), -away])
    pose = np.eye(4)
    pose[:3, :3] = turn
    pose[:3, 3] = -turn @ (np.array(centre) + distance * away)
    return pose


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a viewer wants to see."""

    width: int
    height: int
    timestep: int
    world_to_camera: np.ndarray
    intrinsics: np.ndarray
    do_training: bool

    @classmethod
    def parse(cls, message):
        """Of the bytes of a message; ValueError where they are no request."""
        try:
            asked = json.loads(message)
            width, height, timestep = (int(asked[key]) for key in ("width", "height", "timestep"))
            keys = ("yaw", "pitch", "distance", "field")
            yaw, pitch, distance, field = (float(asked.get(key, VIEW[key])) for key in keys)
            do_training = bool(asked.get("do_training", True))
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"no request: {error!r}") from None
        if not (0 <= width <= MAX_SIDE and 0 <= height <= MAX_SIDE and timestep >= 0):
            raise ValueError(f"no request: {width} x {height} at timestep {timestep}")
        if not all(map(math.isfinite, (yaw, pitch))) or not (0 < distance < 1e3 and 0 < field < 1e3):
            raise ValueError(f"no camera: yaw {yaw}, pitch {pitch}, distance {distance}, field {field}")
        focal = height * distance / field
        return cls(
            width=width,
            height=height,
            timestep=timestep,
            world_to_camera=orbit(yaw, pitch, distance).astype(np.float32),
            intrinsics=np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]], np.float32),
            do_training=do_training,
        )


def answer(request, render, stats):
    """What is told to the client, and the picture's bytes; an error of ``render`` is the client's to know."""
    said = {"width": request.width, "height": request.height, **(stats or {})}
    if not (request.width and request.height):
        return said, b""
    try:
        image = render(request).detach().clamp(0, 1).mul(255).round().byte()
        if image.shape != (3, request.height, request.width):
            raise ValueError(f"a picture of {tuple(image.shape)} for {request.height} x {request.width}")
        return said, image.permute(1, 2, 0).contiguous().cpu().numpy().tobytes()
    except Exception as error:  # whatever a viewer asks for, training goes on
        return {"error": f"{type(error).__name__}: {error}"}, b""


def packed(said, pixels):
    header = json.dumps({**said, "num_bytes": len(pixels)}, default=float).encode()  # a loss is a tensor
    return LENGTH.pack(len(header)) + header + pixels


def receive(connection, num_bytes):
    """Exactly ``num_bytes`` bytes; ConnectionError when the other side goes first."""
    parts = []
    while num_bytes:
        part = connection.recv(min(num_bytes, 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed")
        parts.append(part)
        num_bytes -= len(part)
    return b"".join(parts)


class NetworkGui:
    """As the project has it: looks for a client in every iteration, then waits for its request and draws.

    ``render(request)`` gives (3, H, W) in 0..1, without gradients. A port that is taken means no viewer, not
    no training. A silent client, rubbish and a lost connection end the connection, nothing else.
    """

    def __init__(self, host="127.0.0.1", port=6009):
        self.connection, self.listener, self.told = None, socket.socket(), set()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind((host, port))
            self.listener.listen()
            self.listener.settimeout(0)
            self.port = self.listener.getsockname()[1]
        except (OSError, OverflowError) as error:
            self.close()
            print(
                f"no viewer at {host}:{port} ({error}); training goes on, --port names another",
                file=sys.stderr,
            )

    def poll(self, render, stats=None):
        """Serve the client, if there is one; ``stats`` is told to it. Stays here while training is paused."""
        self._accept()
        while self.connection is not None:
            try:
                request = self._next_request()
                self.connection.sendall(self._answer(request, render, stats))
            except (OSError, ValueError) as error:
                self._drop(error)
                return
            if request.do_training:
                return

    def close(self):
        for open_socket in (self.connection, self.listener):
            if open_socket is not None:
                open_socket.close()
        self.connection = self.listener = None

    def _accept(self):
        if self.connection is None and self.listener is not None:
            try:
                self.connection, _ = self.listener.accept()
                self.connection.settimeout(PATIENCE_S)
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                pass  # nobody there

    def _next_request(self):
        (size,) = LENGTH.unpack(receive(self.connection, LENGTH.size))
        return Request.parse(receive(self.connection, checked(size)))

    def _answer(self, request, render, stats):
        said, pixels = answer(request, render, stats)
        if "error" in said:
            self._tell(f"viewer: {said['error']}")
        return packed(said, pixels)

    def _drop(self, error):
        self.connection.close()
        self.connection = None
        if not isinstance(error, ConnectionError):
            self._tell(f"viewer let go: {error}")

    def _tell(self, words):
        """Once: a viewer asks many times a second."""
        if words not in self.told:
            self.told.add(words)
            print(words, file=sys.stderr)


def checked(size):
    if size > MAX_REQUEST_BYTES:
        raise ValueError(f"no request: it would have {size:,} bytes")
    return size


class ThrottledGui(NetworkGui):
    """Looks after its client ``frames_per_second`` times a second and never waits for it."""

    def __init__(self, host="127.0.0.1", port=6009, frames_per_second=10):
        super().__init__(host, port)
        self.interval_s, self.due_s = 1 / frames_per_second, 0.0
        self._forget()

    def poll(self, render, stats=None):
        """Answer a request that has come; return at once where none has, unless training is paused."""
        if time.monotonic() < self.due_s:
            return
        self.due_s = time.monotonic() + self.interval_s
        self._accept()
        try:
            while self.connection is not None:
                self._flush()
                request = None if self.outgoing else self._request_there()
                if request is not None:
                    self.outgoing = memoryview(self._answer(request, render, stats))
                    self.paused = not request.do_training
                    self._flush()
                elif time.monotonic() - self.heard_s > PATIENCE_S:
                    raise TimeoutError("timed out")
                if not self.paused:
                    return
                if request is None:
                    self._wait()
        except (OSError, ValueError) as error:
            self._drop(error)

    def _forget(self):
        self.incoming, self.outgoing = b"", memoryview(b"")
        self.paused, self.heard_s = False, time.monotonic()

    def _accept(self):
        if self.connection is None:
            super()._accept()
            if self.connection is not None:
                self._forget()
                self.connection.setblocking(False)

    def _drop(self, error):
        super()._drop(error)
        self._forget()

    def _request_there(self):
        """The request that has come whole, or None."""
        try:
            part = self.connection.recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            part = None
        if part == b"":
            raise ConnectionError("the connection was closed")
        self.incoming += part or b""
        if len(self.incoming) < LENGTH.size:
            return None
        size = checked(LENGTH.unpack_from(self.incoming)[0])
        end = LENGTH.size + size
        if len(self.incoming) < end:
            return None
        message, self.incoming = self.incoming[LENGTH.size : end], self.incoming[end:]
        self.heard_s = time.monotonic()
        return Request.parse(message)

    def _flush(self):
        try:
            while self.outgoing:
                self.outgoing = self.outgoing[self.connection.send(self.outgoing) :]
                self.heard_s = time.monotonic()
        except BlockingIOError:
            pass  # the client has not read it yet

    def _wait(self):
        """Until the client takes more of its picture, or says something."""
        to_read, to_write = ([], [self.connection]) if self.outgoing else ([self.connection], [])
        select.select(to_read, to_write, [], PATIENCE_S)
