"""Runs the tests in several processes, which are forked from the process that collects, distributes and reports.

`pytest --processes=4`. Collecting takes longer than most modules' tests, so it happens once; all processes inherit its
imports and caches. Each process runs the tests of a module at a time, the longest module first, and requests the next
module when it starts the last test. Its fixtures (a gateway, a database) live until its end, as in a run with one
process.
"""

import atexit
import mmap
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import gevent
import pytest
from gevent.monkey import get_original
from support import leftovers, ordering, servers

LENGTH = 4  # bytes of a message's length
SEND_S = 0.5  # passed tests are reported together
# The seconds from which `--durations` lists a setup or teardown.
LISTED_S = 0.005
# Servers that all processes share, started at the first request.
SERVERS = {"postgres": servers.run_postgres}
THREADS = Path("/proc/self/task")
# Without gevent's event loop, which must not start before the fork.
fork, poll = get_original("os", "fork"), get_original("select", "poll")

# The number of this process: 0 for the only process and for the parent.
number = 0
_channel: "Channel | None" = None


class Channel:
    """Messages between two processes; each is a picklable value."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self._writing = reading, writing

    def send(self, message: Any) -> None:
        data = pickle.dumps(message)
        data = len(data).to_bytes(LENGTH, "little") + data
        while data:
            data = data[os.write(self._writing, data) :]

    def receive(self) -> Any:
        """Return the next message. EOFError when the other process has ended."""
        return pickle.loads(self._read(int.from_bytes(self._read(LENGTH), "little")))

    def close(self) -> None:
        os.close(self.reading)
        os.close(self._writing)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = os.read(self.reading, size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def channels() -> tuple[Channel, Channel]:
    """Return both ends of a new channel."""
    (first, second), (third, fourth) = os.pipe(), os.pipe()
    return Channel(first, fourth), Channel(third, second)


@contextmanager
def server(name: str) -> Iterator[str]:
    """Return the URL of one of SERVERS, which all processes share."""
    if _channel is None:
        with SERVERS[name]() as url:
            yield url
        return
    _channel.send(("server", name))
    url, skipped = _channel.receive()
    if skipped:
        pytest.skip(skipped)
    yield url


def run(session: pytest.Session, count: int) -> None:
    """Run all tests of the session in several processes."""
    if THREADS.is_dir() and len(list(THREADS.iterdir())) > 1:
        raise pytest.UsageError("A library has a thread, which no fork keeps: it belongs into support/late_imports.py.")
    # Made before the fork: with --basetemp, the first call in a process empties the folder.
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    modules = ordering.modules_of(session.items)
    _Parent(session, ordering.Queue(modules)).run(min(count, len(modules)))


class _Parent:
    """The process that distributes tests and reports results."""

    def __init__(self, session: pytest.Session, queue: ordering.Queue) -> None:
        self._session, self._queue = session, queue
        # Shared memory: the current test of each process, which shows the test that crashed it; the first entry is the
        # stop flag.
        self._at = mmap.mmap(-1, 4096)
        self._running: dict[int, _Child] = {}
        self._servers: dict[str, tuple[str, str]] = {}
        self._stack = ExitStack()

    def run(self, count: int) -> None:
        with self._stack:
            self._stack.callback(self._end)
            for place in range(1, count + 1):
                self._fork(_Child(place), [])
            poller = poll()
            for reading in self._running:
                poller.register(reading, select.POLLIN)
            while self._running:
                for reading, _ in poller.poll():
                    if not self._hear(self._running[reading]):
                        poller.unregister(reading)
                        child = self._running.pop(reading)
                        child.channel.close()
                        if again := self._bury(child):
                            poller.register(self._fork(_Child(child.number), again), select.POLLIN)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _next(self, child: "_Child") -> list[int]:
        """Return the tests of another module; [] when all are distributed."""
        if self._session.shouldfail or self._session.shouldstop:
            return []
        return self._queue.take(child.number % 2 == 0, child.libraries)

    def _fork(self, child: "_Child", tests: list[int]) -> int:
        child.tests = tests or self._next(child)
        child.channel, theirs = channels()
        sys.stdout.flush()
        sys.stderr.flush()
        child.process = fork()
        if child.process == 0:
            for other in (child, *self._running.values()):
                other.channel.close()
            _be_child(self._session, child.number, theirs, self._at, child.tests)
        theirs.close()
        self._running[child.channel.reading] = child
        return child.channel.reading

    def _hear(self, child: "_Child") -> bool:
        """Handle a message and return whether more can arrive."""
        try:
            kind, told = child.channel.receive()
        except EOFError:
            return False
        if kind == "end":
            return False
        if kind == "next":
            tests = self._next(child)
            child.tests = [*child.tests, *tests]
            child.channel.send(tests)
        elif kind == "server":
            child.channel.send(self._server(told))
        elif kind == "warning":
            self._session.config.hook.pytest_warning_recorded.call_historic(kwargs=told)
        else:
            config = self._session.config
            for index, data in told:
                child.done.add(index)
                self._report(config.hook.pytest_report_from_serializable(config=config, data=data), child)
        return True

    def _report(self, report: Any, child: "_Child") -> None:
        report.node = child
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._at[:1] = bytes([bool(self._session.shouldfail or self._session.shouldstop)])

    def _bury(self, child: "_Child") -> list[int]:
        """Report the current test of a crashed process as failed, and redistribute its remaining tests."""
        status = 0
        with suppress(ChildProcessError):  # gevent's watcher of ended children may have collected it
            _, status = os.waitpid(child.process, 0)
        left = [index for index in child.tests if index not in child.done]
        if not status and (not left or self._at[0]):
            return []
        at = int.from_bytes(self._at[4 * child.number : 4 * child.number + 4], "little")
        if left and at not in left:
            at = left[0]  # the first test that it did not start
        item = self._session.items[at]
        ended = f"A process ended with {os.waitstatus_to_exitcode(status)} while it ran this test."
        self._report(pytest.TestReport(item.nodeid, item.location, {}, "failed", ended, "call"), child)
        return [] if self._at[0] else [index for index in left if index != at]

    def _server(self, name: str) -> tuple[str, str]:
        """Return the server's URL, or the reason why it is not available."""
        if name not in self._servers:
            try:
                self._servers[name] = self._stack.enter_context(SERVERS[name]()), ""
            except pytest.skip.Exception as reason:
                self._servers[name] = "", str(reason)
        return self._servers[name]

    def _end(self) -> None:
        """End all processes, so that none outlives the run."""
        for child in self._running.values():
            with suppress(ProcessLookupError):
                os.kill(child.process, signal.SIGTERM)
        deadline = time.monotonic() + 5
        for child in self._running.values():
            with suppress(ChildProcessError):
                while not os.waitpid(child.process, os.WNOHANG)[0] and time.monotonic() < deadline:
                    time.sleep(0.05)


class _Child:
    """A child process in the parent. `gateway`, `id` and `workerinfo` have the names that pytest prints."""

    process: int
    channel: Channel

    def __init__(self, place: int) -> None:
        self.number, self.libraries = place, set[str]()
        self.tests, self.done = list[int](), set[int]()
        self.gateway, self.id = self, str(place)
        self.workerinfo = {"id": place, "sysplatform": sys.platform, "version_info": sys.version_info}
        self.workerinfo["executable"] = sys.executable


def _be_child(session: pytest.Session, place: int, channel: Channel, at: mmap.mmap, tests: list[int]) -> NoReturn:
    """Run tests until none are left, and exit."""
    global number, _channel
    status = 1
    try:
        number, _channel = place, channel
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        leftovers.end_with_parent()
        leftovers.adopt()
        gevent.reinit()
        gevent.get_hub().loop.install_sigchld()  # reaps adopted processes
        timer = gevent.get_hub().loop.timer(0.2, 0.2)  # keeps the event loop alive while no other event is pending
        timer.start(lambda: None)
        _settle(session, place)
        _run_all(session, _Reports(session, channel, at, place), channel, list(tests))
        status = 0
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        try:
            atexit._run_exitfuncs()
            leftovers.end_all()
        finally:
            os._exit(status)


def _settle(session: pytest.Session, place: int) -> None:
    """Give this process separate files and folders."""
    plugins = session.config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture(in_=True)
    for name in ("terminalreporter", "terminalprogress"):
        if plugins.hasplugin(name):
            plugins.unregister(name=name)
    folders: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.getbasetemp() / f"process{place}"
    folders._basetemp.mkdir(mode=0o700, exist_ok=True)


def _run_all(session: pytest.Session, reports: "_Reports", channel: Channel, tests: list[int]) -> None:
    session.config.pluginmanager.register(reports)
    while tests and not reports.shall_stop():
        if len(tests) == 1:
            reports.send()
            channel.send(("next", None))
            tests += channel.receive()
        reports.begin(tests[0])
        item = session.items[tests.pop(0)]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=session.items[tests[0]] if tests else None)
    session._setupstate.teardown_exact(None)  # fixtures that remain after a stop
    reports.send()
    channel.send(("end", None))


class _Reports:
    """Sends the reports of a process: every test call, and setups and teardowns that failed or were slow."""

    def __init__(self, session: pytest.Session, channel: Channel, at: mmap.mmap, place: int) -> None:
        self._config, self._channel, self._at, self._place = session.config, channel, at, 4 * place
        self._index, self._kept, self._sent = 0, list[tuple[int, dict[str, Any]]](), time.monotonic()

    def begin(self, index: int) -> None:
        self._index = index
        self._at[self._place : self._place + 4] = index.to_bytes(4, "little")
        if time.monotonic() > self._sent + SEND_S:
            self.send()

    def shall_stop(self) -> bool:
        return bool(self._at[0])

    def send(self) -> None:
        if self._kept:
            self._channel.send(("reports", self._kept))
        self._kept, self._sent = [], time.monotonic()

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            if report.when != "call" and report.duration < LISTED_S and not report.sections:
                return
            report.keywords = {}
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._kept.append((self._index, data))

    @pytest.hookimpl
    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        told = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        try:
            self._channel.send(("warning", told))
        except (pickle.PicklingError, TypeError, AttributeError):
            warning_message.source = None
            warning_message.message = UserWarning(str(warning_message.message))
            self._channel.send(("warning", told))
