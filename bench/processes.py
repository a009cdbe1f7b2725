"""Processes of the rig: starting, pinning, stopping, and what the kernel counts of them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_S = 20.0
POLL_S = 0.005
TARGET_CORE, RIG_CORE = 0, 1


class BenchError(Exception):
    """Why the benchmark cannot run or its figures would mean nothing."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that this run started; `log` holds what it printed."""

    name: str
    popen: subprocess.Popen
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


def refuse_taken(port: int) -> None:
    """BenchError when something answers on `port`: it would be measured in place of ours."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
        raise BenchError(f"port {port} already answers; stop what holds it or choose another with --port")


def pin(command: list[str], core: int) -> list[str]:
    """The command bound to one core; unchanged where there is one core or no taskset."""
    if len(os.sched_getaffinity(0)) < 2 or not shutil.which("taskset"):
        return command
    return ["taskset", "-c", str(sorted(os.sched_getaffinity(0))[core]), *command]


@contextlib.contextmanager
def running(
    name: str,
    command: list[str],
    core: int,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[Process]:
    """Start a command in the folder `cwd`, and stop it, and only it with its children, at the end."""
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        popen = subprocess.Popen(
            pin(command, core),
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=None if environment is None else dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
    process = Process(name, popen, log)
    try:
        yield process
    finally:
        stop(process)


def stop(process: Process) -> None:
    """SIGTERM, then SIGKILL for the session of a process that does not listen."""
    if process.popen.poll() is None:
        process.popen.terminate()
        try:
            process.popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.popen.wait()


def wait_for_port(process: Process, port: int, seconds: float = 30.0) -> float:
    """Seconds until the process accepts on `port`. BenchError when it ends or takes too long."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        if process.popen.poll() is not None:
            raise BenchError(f"{process.name} ended at its start:\n{process.tail()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return time.monotonic() - began
        time.sleep(POLL_S)
    raise BenchError(f"{process.name} does not listen on port {port}:\n{process.tail()}")


def tree(root: int) -> list[int]:
    """`root` and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of a process tree, its reaped children included (proc(5): fields 14 to 17)."""
    ticks = sum(sum(map(int, fields[11:15])) for pid in tree(root) if (fields := _stat(pid)))
    return ticks / TICKS_PER_S


def thread_seconds(root: int) -> float:
    """CPU time of the living threads of a process tree, in nanoseconds of the scheduler instead of ticks of 10 ms."""
    total = 0
    for pid in tree(root):
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(path.read_text().split()[0])
    return total / 1e9


def pss_mb(root: int) -> float:
    """Proportional set size of a process tree in MB; 0.0 where the kernel does not tell."""
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name (which may hold spaces), [] when the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
