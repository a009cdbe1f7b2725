import contextlib
import json
import random
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from gevent.server import StreamServer

from bench import run
from bench.processes import BenchError, refuse_taken, running, wait_for_port
from bench.targets import write_request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cc"), reason="the rig is written in C and needs a compiler"),
]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def binaries() -> Path:
    run.build()
    return run.BUILD


PORTS = 3  # the mock listens on as many in a row


def free_ports() -> int:
    """The first of PORTS free ports in a row, below those that the kernel hands to clients."""
    for first in random.sample(range(20_000, 30_000, PORTS), 50):
        with contextlib.ExitStack() as bound:
            try:
                for port in range(first, first + PORTS):
                    bound.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports in a row")


@pytest.fixture
def mock_port(binaries, tmp_path):
    port = free_ports()
    with running("mock", [str(binaries / "mock"), str(port)], 1, tmp_path) as process:
        wait_for_port(process, port)
        yield port


def load(binaries, tmp_path, port, *, stream=False, prompt="", seconds=0.2, rate=0) -> dict:
    (tmp_path / "request").write_bytes(write_request(port, prompt, stream))
    command = [binaries / "load", port, tmp_path / "request", 4, seconds, rate, 0, int(stream)]
    return json.loads(subprocess.run(list(map(str, command)), capture_output=True, timeout=20).stdout)


def test_whole_answers_of_the_mock_are_good(binaries, tmp_path, mock_port):
    result = load(binaries, tmp_path, mock_port)
    assert result["good"] > 0
    assert (result["errors"], result["whole"]["count"]) == (0, result["good"])


def test_streams_of_the_mock_are_good_and_their_chunks_have_an_age(binaries, tmp_path, mock_port):
    result = load(binaries, tmp_path, mock_port, stream=True, prompt="count=7 gap=1")
    assert result["errors"] == 0
    assert result["delay"]["count"] == 7 * result["good"] > 0


def test_open_loop_starts_no_more_requests_than_its_rate(binaries, tmp_path, mock_port):
    # A closed loop starts thousands in this time; a machine that is busy starts fewer than the rate.
    assert 0 < load(binaries, tmp_path, mock_port, rate=50)["good"] <= 11


@pytest.mark.parametrize("offset", [1, 2])
def test_error_statuses_are_no_good_answers(binaries, tmp_path, mock_port, offset):
    result = load(binaries, tmp_path, mock_port + offset)
    assert result["good"] == 0 < result["errors"]


@pytest.mark.parametrize(
    ("stream", "wire"),
    [
        (False, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"),
        (False, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlonger"),
        (True, CHUNKED + b"5\r\ndata:\r\n0\r\n\r\n"),
        (True, CHUNKED + b"e\r\ndata: [DONE]\n\n\r\n"),
        (False, b"nonsense\r\n\r\n"),
    ],
)
def test_answer_cut_short_or_without_done_is_an_error(binaries, tmp_path, stream, wire):
    def serve(sock, _address):
        sock.recv(65536)
        sock.sendall(wire)

    with StreamServer(("127.0.0.1", 0), serve) as server:
        server.start()
        result = load(binaries, tmp_path, server.server_port, stream=stream, seconds=0.05)
    assert result["good"] == 0 < result["errors"]


def test_port_that_already_answers_is_refused(mock_port):
    with pytest.raises(BenchError, match="already answers"):
        refuse_taken(mock_port)


def test_process_that_ends_at_once_is_reported_with_what_it_printed(tmp_path):
    with (
        running("mute", ["sh", "-c", "echo no such luck; exit 3"], 1, tmp_path) as process,
        pytest.raises(BenchError, match="no such luck"),
    ):
        process.popen.wait(60)
        wait_for_port(process, 1)


def test_stopping_takes_only_what_was_started(tmp_path):
    with running("sleeper", ["sleep", "60"], 1, tmp_path) as process:
        began = time.monotonic()
    assert process.popen.poll() is not None
    assert time.monotonic() - began < 5
