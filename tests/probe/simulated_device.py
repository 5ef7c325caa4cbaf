"""An asynchronous device in virtual time: work starts when submitted, or when the device gets to it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Simulation:
    """The host's clock and one stream, ns. The device's own clock differs by ``offset`` and ``drift``."""

    now: int = 1_000_000_000
    tail: int = 0  # when the device will have done everything submitted so far
    worked: int = 0  # the end of the last kernel
    busy: int = 0
    offset: int = 123_456_789
    drift: float = 0.0
    event_cost: int = 2_000
    idle: list[tuple[int, int]] = field(default_factory=list)

    def host(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def launch(self, seconds: float, cost: float = 5e-6) -> None:
        self.host(cost)
        self._submit(round(seconds * 1e9))

    def synchronize(self) -> None:
        self.now = max(self.now, self.tail)

    def event(self) -> Event:
        return Event(self)

    def _submit(self, duration: int) -> int:
        start = max(self.now, self.tail)
        if duration:
            if self.worked and start > self.worked:
                self.idle.append((self.worked, start))
            self.worked = start + duration
        self.tail = start + duration
        self.busy += duration
        return self.tail

    def device_time(self, at: int) -> float:
        return at * (1 + self.drift) + self.offset


class Event:
    """Like ``torch.cuda.Event(enable_timing=True)``."""

    def __init__(self, device: Simulation) -> None:
        self._device = device
        self.done_at: int | None = None

    def record(self) -> None:
        self._device.now += self._device.event_cost
        self.done_at = self._device._submit(0)

    def query(self) -> bool:
        assert self.done_at is not None
        self._device.now += 300
        return self._device.now >= self.done_at

    def elapsed_time(self, end_event: Event) -> float:
        assert self.query(), "elapsed_time() of an event that was not passed raises in torch"
        assert end_event.query()
        assert self.done_at is not None
        assert end_event.done_at is not None
        device = self._device
        return (device.device_time(end_event.done_at) - device.device_time(self.done_at)) / 1e6
