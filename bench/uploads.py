"""The effect of large uploads on a worker and its other requests: `python -m bench.uploads`.

Two storms, each at once: 50 sounds of 25 MB to be transcribed, 20 images of 10 MB to be changed. Beside them small chat
requests go on at a steady pace. Told are the memory that the storm added (proportional set size of arbiter and worker)
and how much later the small requests were answered, at p50 and p99. Sender and upstream share the rig's core.
"""

import argparse
import contextlib
import http.client
import os
import socket
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.lanes import OPENAI
from bench.processes import RIG_CORE, BenchError, cpu_seconds, pss_mb, running
from bench.targets import KEY, ROOT, Target, start_gateway, write_request
from bench.upstreams import serve, serving, size_of, write_reply

PACE_S, QUIET_S = 0.02, 5.0
MAX_MB, MAX_DELAY_MS = 100.0, 50.0
EDGE = "an-edge-between-parts"
PIECE = 1 << 18
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ANSWERS = {
    b"/chat/completions": OPENAI,
    b"/audio/transcriptions": {"text": "Heard.", "duration": 1.0},
    b"/images/edits": {"created": 1, "data": [{"b64_json": PIXEL}]},
}


@dataclass(frozen=True, slots=True)
class Storm:
    """`head` begins each file, so that it is what it claims to be."""

    name: str
    path: str
    count: int
    megabytes: int
    field: str
    head: bytes
    fields: dict[str, str]

    def parts(self) -> tuple[bytes, int, bytes]:
        """The bytes before the file, the file, and the bytes after it."""
        text = "".join(
            f'--{EDGE}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in self.fields.items()
        )
        text += f'--{EDGE}\r\nContent-Disposition: form-data; name="{self.field}"; filename="a"\r\n\r\n'
        return text.encode() + self.head, self.megabytes << 20, f"\r\n--{EDGE}--\r\n".encode()


def _wav(seconds: int) -> bytes:
    size = seconds * 32000
    return b"".join((
        b"RIFF", (size + 36).to_bytes(4, "little"), b"WAVEfmt ", (16).to_bytes(4, "little"), (1).to_bytes(2, "little"),
        (1).to_bytes(2, "little"), (16000).to_bytes(4, "little"), (32000).to_bytes(4, "little"),
        (2).to_bytes(2, "little"), (16).to_bytes(2, "little"), b"data", size.to_bytes(4, "little"),
    ))  # fmt: skip


def _png() -> bytes:
    body = b"IHDR" + (1024).to_bytes(4, "big") * 2 + bytes((8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


STORMS = (
    Storm("sounds", "/v1/audio/transcriptions", 50, 25, "file", _wav(819), {"model": "openai/whisper-1"}),
    Storm("images", "/v1/images/edits", 20, 10, "image", _png(), {"model": "openai/gpt-image-1", "prompt": "A fox"}),
)


@dataclass
class Probe:
    """Small requests at a steady pace; `waits` are the seconds that each took from when it was due."""

    port: int
    waits: list[float] = field(default_factory=list)
    failures: int = 0

    def run(self, over: threading.Event) -> None:
        request = write_request(self.port, "Hello", False, "openai/gpt-4o-mini")
        line = socket.create_connection(("127.0.0.1", self.port))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = time.monotonic()
        with line:
            while not over.is_set():
                line.sendall(request)
                answer = read_answer(line)
                self.waits.append(time.monotonic() - due)
                self.failures += not answer.startswith(b"HTTP/1.1 200")
                due = max(due + PACE_S, time.monotonic() - 1.0)
                time.sleep(max(0.0, due - time.monotonic()))

    def at(self, fraction: float) -> float:
        """Milliseconds at a quantile."""
        return sorted(self.waits)[int(len(self.waits) * fraction)] * 1000


@dataclass(frozen=True, slots=True)
class Figures:
    seconds: float
    added_mb: float
    cpu_s: float
    p50_ms: tuple[float, float]
    p99_ms: tuple[float, float]

    @property
    def good(self) -> bool:
        return self.added_mb <= MAX_MB and self.p99_ms[1] - self.p99_ms[0] <= MAX_DELAY_MS


def main(arguments: list[str] | None = None) -> int:
    """0 when both storms kept to their limits; 1 otherwise, or with a reason when the run means nothing."""
    options = read_options(arguments)
    if options.serve:
        serve(options.serve, answer)
        return 0
    if options.send:
        send(STORMS[options.storm], options.send, options.part)
        return 0
    good = True
    try:
        for number, storm in enumerate(STORMS):
            figures = measure(number, options.port, options.part)
            print(write_line(storm, figures))
            good = good and figures.good
    except BenchError as error:
        print(f"uploads: {error}", file=sys.stderr)
        return 1
    return 0 if good else 1


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.uploads", description=__doc__)
    parser.add_argument("--port", type=int, default=19460, help="first of the two ports to use (19460)")
    parser.add_argument("--part", type=float, default=1.0, help="of the storms' uploads, for a quick look (1.0)")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--send", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--storm", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measure(number: int, port: int, part: float = 1.0) -> Figures:
    """One storm against a separate gateway. BenchError when an upload or a small request fails."""
    with tempfile.TemporaryDirectory(prefix="uploads-") as name, start(port, Path(name)) as gateway:
        before = probe_for(gateway, lambda: time.sleep(QUIET_S))
        storm = [sys.executable, "-m", "bench.uploads", "--send", str(gateway.port), "--storm", str(number)]
        storm += ["--part", str(part)]
        memory = Memory(gateway)
        cpu, began = cpu_seconds(gateway.process.pid), time.monotonic()
        during = probe_for(gateway, lambda: memory.watch(storm, Path(name)))
        seconds, cpu = time.monotonic() - began, cpu_seconds(gateway.process.pid) - cpu
    waits = [(before.at(q), during.at(q)) for q in (0.5, 0.99)]
    return Figures(seconds, memory.maximum - memory.first, cpu, *waits)


def probe_for(gateway: Target, work: Callable[[], object]) -> Probe:
    """Send small requests while `work` runs and return their probe."""
    probe, over = Probe(gateway.port), threading.Event()
    thread = threading.Thread(target=probe.run, args=(over,))
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    if probe.failures:
        raise BenchError(f"{probe.failures} of {len(probe.waits)} small requests were not answered well")
    return probe


class Memory:
    """Memory of a gateway's process tree in MB: at first, and the maximum while a command runs."""

    def __init__(self, gateway: Target) -> None:
        self._pid = gateway.process.pid
        self.first = self.maximum = pss_mb(self._pid)

    def watch(self, command: list[str], folder: Path) -> None:
        environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ.get("PATH", "")}
        with running("sender", command, RIG_CORE, folder, environment) as sender:
            while sender.popen.poll() is None:
                self.maximum = max(self.maximum, pss_mb(self._pid))
                time.sleep(0.1)
            if sender.popen.returncode:
                raise BenchError(f"uploads failed:\n{sender.tail()}")


@contextlib.contextmanager
def start(port: int, folder: Path) -> Iterator[Target]:
    with serving("bench.uploads", port, folder) as own, start_gateway(own, port, folder) as gateway:
        yield gateway


def write_line(storm: Storm, figures: Figures) -> str:
    p50, p99 = figures.p50_ms, figures.p99_ms
    verdict = "" if figures.good else f"  beyond {MAX_MB:.0f} MB or {MAX_DELAY_MS:.0f} ms"
    return (
        f"{storm.count} {storm.name} of {storm.megabytes} MB in {figures.seconds:.1f} s: "
        f"{figures.added_mb:.0f} MB more, {figures.cpu_s:.1f} s of CPU; "
        f"small requests p50 {p50[0]:.1f} → {p50[1]:.1f} ms, "
        f"p99 {p99[0]:.1f} → {p99[1]:.1f} ms{verdict}"
    )


def send(storm: Storm, port: int, part: float) -> None:
    """All uploads of a storm at once, each on a separate connection; what is not answered with 200 ends the process
    with its answer."""
    problems: list[str] = []
    threads = [
        threading.Thread(target=upload, args=(storm, port, problems)) for _ in range(max(1, round(storm.count * part)))
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if problems:
        sys.exit(f"{len(problems)} of {len(threads)}: {problems[0]}")


def upload(storm: Storm, port: int, problems: list[str]) -> None:
    before, size, behind = storm.parts()
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        line.putrequest("POST", storm.path)
        line.putheader("Authorization", f"Bearer {KEY}")
        line.putheader("Content-Type", f"multipart/form-data; boundary={EDGE}")
        line.putheader("Content-Length", str(len(before) + size + len(behind)))
        line.endheaders(before)
        zeros = bytes(PIECE)
        for at in range(0, size, PIECE):
            line.send(zeros[: min(PIECE, size - at)])
        line.send(behind)
        answer = line.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            problems.append(f"{answer.status} {body[:300]!r}")
    except OSError as error:
        problems.append(repr(error))
    finally:
        line.close()


def read_answer(line: socket.socket) -> bytes:
    """One answer with a length."""
    data = b""
    while True:
        head, found, rest = data.partition(b"\r\n\r\n")
        if found and len(rest) >= size_of(head):
            return data
        more = line.recv(65536)
        if not more:
            raise BenchError("the gateway closed the line of the small requests")
        data += more


def answer(connection: socket.socket) -> None:
    """The requests of one connection, each once its body was read and dropped."""
    with connection, contextlib.suppress(OSError):
        reader = connection.makefile("rb", buffering=1 << 18)
        while start_line := reader.readline():
            length = 0
            while (line := reader.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line[15:])
            while length:
                length -= len(reader.read(min(length, PIECE)))
            connection.sendall(write_reply(start_line, ANSWERS))


if __name__ == "__main__":
    sys.exit(main())
