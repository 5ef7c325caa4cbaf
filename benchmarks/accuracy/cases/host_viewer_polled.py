# truth: host/viewer-in-loop
# bottleneck: host
# line: select|accept|recv|send|poll|view
"""A remote viewer is served from inside the loop; a client is connected and wants each frame."""
import socket
import struct
import threading

import numpy as np
import torch


def client(port, stop):
    with socket.create_connection(("127.0.0.1", port)) as s:
        while not stop.is_set():
            try:
                s.sendall(struct.pack("<I", 1))
                left = struct.unpack("<I", s.recv(4, socket.MSG_WAITALL))[0]
                while left:
                    left -= len(s.recv(min(left, 1 << 16)))
            except (OSError, struct.error):
                return
            stop.wait(0.025)


class Viewer:
    def __init__(self):
        self.server = socket.socket()
        self.server.bind(("127.0.0.1", 0))
        self.server.listen()
        self.server.settimeout(0)
        self.port = self.server.getsockname()[1]
        self.conn = None

    def poll(self, image):
        if self.conn is None:
            try:
                self.conn, _ = self.server.accept()
                self.conn.settimeout(None)
            except BlockingIOError:
                return
        self.conn.recv(4)
        frame = (image.clamp(0, 1) * 255).byte().numpy().tobytes()
        self.conn.sendall(struct.pack("<I", len(frame)))
        self.conn.sendall(frame)


def main():
    torch.manual_seed(0)
    viewer, stop = Viewer(), threading.Event()
    thread = threading.Thread(target=client, args=(viewer.port, stop), daemon=True)
    thread.start()
    canvas = torch.nn.Parameter(torch.rand(96, 96, 3))
    target = torch.from_numpy(np.random.default_rng(0).random((96, 96, 3), dtype=np.float32))
    optimizer = torch.optim.Adam([canvas], lr=1e-2)
    for iteration in range(160):
        viewer.poll(canvas.detach())
        loss = (canvas - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 50 == 0:
            print(iteration, loss.item())
    stop.set()
    viewer.conn.close()
    thread.join()


if __name__ == "__main__":
    main()
