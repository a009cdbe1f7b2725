"""Plays a script as a reply, with its pauses in real time."""

from collections.abc import Callable, Iterator

from gateway.clock import Clock
from gateway.errors import StreamTruncated, UpstreamTimeout
from gateway.providers.sandbox.script import Script

TIMED_OUT = "The sandbox did not answer in time."
CUT = "The sandbox cut the transfer of its answer."


class Timeline:
    """Waits that respect a deadline (monotonic seconds); `pause` sleeps for a number of seconds."""

    def __init__(self, clock: Clock, pause: Callable[[float], None], deadline: float, heartbeat_s: float) -> None:
        self._clock = clock
        self._pause = pause
        self._deadline = deadline
        self._heartbeat_s = heartbeat_s

    def wait(self, seconds: float) -> Iterator[bytes]:
        """Wait, and yield b"" after every heartbeat interval. UpstreamTimeout at the deadline."""
        now = self._clock.monotonic()
        until = now + seconds
        while True:
            if now >= self._deadline:
                raise UpstreamTimeout(TIMED_OUT)
            if now >= until:
                return
            nap = min(until - now, self._deadline - now, self._heartbeat_s or seconds)
            self._pause(nap)
            now = self._clock.monotonic()
            if now < until and now < self._deadline:
                yield b""

    def pause_for(self, seconds: float) -> None:
        """Wait without heartbeats. UpstreamTimeout at the deadline."""
        for _ in self.wait(seconds):
            pass


class SandboxReply:
    """An UpstreamReply that plays a script."""

    def __init__(self, script: Script, timeline: Timeline, ident: str) -> None:
        self.status = script.status
        self.headers = {**script.headers, "x-request-id": ident}
        self._script = script
        self._timeline = timeline
        self._closed = False

    def read_all(self) -> bytes:
        """Return the whole body. UpstreamTimeout at the deadline, StreamTruncated when the transfer is cut."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives, and b"" for every heartbeat interval of silence. Ends immediately after
        close()."""
        for step in self._script.steps:
            for beat in self._timeline.wait(step.wait_s):
                yield beat
                if self._closed:
                    return
            if step.data:
                yield step.data
            if self._closed:
                return
        yield from self._end()

    def close(self) -> None:
        """Stop the reply."""
        self._closed = True

    def _end(self) -> Iterator[bytes]:
        if self._script.ending == "cut":
            raise StreamTruncated(CUT)
        if self._script.ending == "stall":
            yield from self._timeline.wait(float("inf"))
