"""A gateway comes up whatever is broken around it, never goes down because of a change, and says what is wrong."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import gevent
import pytest
from support.breakable_network import Gate
from support.gateways import ROOT, GatewayProcess, free_port
from support.two_providers import write_twins

HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
SECRETS = {"GATEWAY_API_KEY_HASH_SECRET": "hash-secret-of-the-tests", "GATEWAY_ENCRYPTION_KEY": "key-of-the-tests-1"}
BROKEN = 'name = "North"\nprotocol = "telepathy"\n'
WAIT_S = 20.0

Start = Callable[..., GatewayProcess]


def get(gateway: GatewayProcess, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(gateway.address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def wait_until(done: Callable[[], object], seconds: float = WAIT_S) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it did not come to that"
        gevent.sleep(0.05)


def refused_metric(gateway: GatewayProcess) -> str:
    text = get(gateway, "/metrics", Authorization="Bearer token")[1]
    return next(line for line in text.splitlines() if line.startswith("llmgateway_configuration_refused"))


def served(gateway: GatewayProcess, model: str) -> bool:
    return f'"{model}"' in get(gateway, "/v1/models")[1]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Path]]:
    """Two workers with a catalogue folder of the operator's own."""
    folder = tmp_path_factory.mktemp("boot")
    environment = write_twins(folder / "own", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1")
    gateway = GatewayProcess(folder / "data", 2, GATEWAY_METRICS_TOKEN="token", **environment)
    yield gateway.start(), folder / "own" / "providers" / "north.toml"
    gateway.discard()


def test_a_broken_catalogue_ends_nothing_and_is_reported_everywhere(twins: tuple[GatewayProcess, Path]) -> None:
    gateway, file = twins
    good = file.read_text()
    wait_until(lambda: len(gateway.workers()) == 2)
    before = gateway.workers()
    file.write_text(BROKEN)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: len(gateway.workers()) == 2 and before[0] not in gateway.workers())
    wait_until(lambda: "mistake" in get(gateway, "/readyz")[1])
    assert "telepathy" in gateway.log() and "config check" in gateway.log() and "Traceback" not in gateway.log()
    gateway.hang_up()
    wait_until(lambda: "by SIGHUP" in gateway.log())
    assert before[1] in gateway.workers(), "a change that is refused replaces no worker"
    assert get(gateway, "/readyz")[0] == 200 and refused_metric(gateway).endswith(" 1.0")
    assert all(gateway.post("/v1/chat/completions", HELLO)[0] == 200 for _ in range(6)) and served(gateway, "twin")

    gateway.terminate()
    assert gateway.wait() == 0
    gateway.start()
    assert "Warning: the catalogue's files have" in gateway.log()
    assert served(gateway, "twin") and "is in force" in get(gateway, "/readyz")[1]

    file.write_text(good.replace('"twin-north"', '"twin-northern"'))
    before = gateway.workers()
    gateway.hang_up()
    wait_until(lambda: not set(before) & set(gateway.workers()) and len(gateway.workers()) == 2)
    wait_until(lambda: get(gateway, "/readyz") == (200, "ready\n"))
    assert refused_metric(gateway).endswith(" 0.0") and "twin-northern" in get(gateway, "/v1/models")[1]


def test_a_reload_takes_new_keys_and_fails_no_request(twins: tuple[GatewayProcess, Path]) -> None:
    gateway, _ = twins
    before, codes, stop = gateway.workers(), [], []

    def request_models() -> None:
        while not stop:
            codes.append(get(gateway, "/v1/models?available=true")[0])

    asking = [gevent.spawn(request_models) for _ in range(3)]
    (gateway.data / "key").write_text("sk-rotated-and-long-enough")
    (gateway.data / "gateway.toml").write_text('[providers.groq]\napi_key = "file:key"\n')
    assert '"groq"' not in get(gateway, "/v1/models?available=true")[1]
    gateway.hang_up()
    wait_until(lambda: not set(before) & set(gateway.workers()))
    stop.append(True)
    gevent.joinall(asking, timeout=60)
    assert set(codes) == {200} and len(codes) > 5
    assert '"groq"' in get(gateway, "/v1/models?available=true")[1], "keys are read anew"


def test_workers_that_cannot_apply_a_reload_accept_no_request(twins: tuple[GatewayProcess, Path]) -> None:
    """A wrong key is known only where the store is opened: the workers before go on until it is mended."""
    gateway, _ = twins
    before = gateway.workers()
    (gateway.data / "gateway.toml").write_text('[secrets]\nencryption_key = "file:key"\n')
    gateway.hang_up()
    wait_until(lambda: gateway.log().count("GATEWAY_ENCRYPTION_KEY") >= 2 and len(gateway.workers()) == 4)
    gevent.sleep(1)
    codes = [gateway.post("/v1/chat/completions", HELLO)[0] for _ in range(20)]
    assert set(codes) == {200} and set(before) <= set(gateway.workers())
    (gateway.data / "gateway.toml").unlink()
    gateway.hang_up()
    wait_until(lambda: len(gateway.workers()) == 2 and not set(before) & set(gateway.workers()))
    assert get(gateway, "/readyz") == (200, "ready\n")


def start_in_vain(tmp_path: Path, **environment: str) -> str:
    """Return the output of a start that fails with status 1: no traceback, no key and no open port."""
    port = environment.get("PORT") or str(free_port())
    process_environment = {
        "PATH": os.environ["PATH"],
        "GATEWAY_ENV": "test",
        "GATEWAY_DATA_DIR": str(tmp_path / "data"),
        "PORT": port,
        **environment,
    }
    command = [sys.executable, "-m", "gateway.operator.command", "serve"]
    done = subprocess.run(command, cwd=ROOT, env=process_environment, capture_output=True, text=True, timeout=60)
    output = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in output and "llmgtwy_" not in output
    assert all(line.startswith("error: ") for line in output.splitlines())
    return output


def test_a_first_start_with_a_broken_catalogue_is_one_line_a_mistake(tmp_path: Path) -> None:
    environment = write_twins(tmp_path / "own", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1")
    (tmp_path / "own/providers/north.toml").write_text(BROKEN)
    output = start_in_vain(tmp_path, **environment)
    assert "telepathy" in output and "north.toml" in output


def test_a_port_in_use_is_named_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        output = start_in_vain(tmp_path, PORT=str(listener.getsockname()[1]))
    assert "is in use" in output and "set PORT" in output and not (tmp_path / "data" / "gateway.db").exists()


def test_a_second_signal_hurries_the_first(process: Start) -> None:
    gateway = process(GATEWAY_SERVER_GRACEFUL_TIMEOUT_S="50")
    slow = HELLO | {
        "model": "sandbox-template",
        "stream": True,
        "messages": [{"role": "user", "content": "[[sandbox: silent=40]]"}],
    }
    held = gevent.spawn(gateway.post, "/v1/chat/completions", slow)
    gevent.sleep(0.5)
    gateway.terminate()
    gevent.sleep(0.3)
    gateway.terminate()
    began = time.monotonic()
    assert gateway.wait(15) == 0 and time.monotonic() - began < 8
    held.kill()


@pytest.fixture
def gate(postgresql_url: str) -> Iterator[tuple[Gate, str]]:
    """A gate to a database of this test's own, and the URL through it."""
    parts = urlsplit(postgresql_url)
    folder = Path(parse_qs(parts.query)["host"][0])
    opened_gate = Gate(str(next(folder.glob(".s.PGSQL.*[0-9]")))).open()
    yield opened_gate, f"postgresql://postgres@127.0.0.1:{opened_gate.port}{parts.path}"
    opened_gate.shut()


@pytest.mark.extended
def test_a_worker_that_dies_while_the_database_is_away_comes_back_with_it(
    gate: tuple[Gate, str], tmp_path: Path
) -> None:
    way, url = gate
    gateway = GatewayProcess(tmp_path / "data", 2, DATABASE_URL=url, **SECRETS)
    try:
        gateway.start()
        wait_until(lambda: len(gateway.workers()) == 2)
        before = gateway.workers()
        way.shut()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: get(gateway, "/readyz")[0] == 503)
        assert get(gateway, "/livez") == (200, "ok\n") and get(gateway, "/")[0] == 503
        status, body = gateway.post("/v1/chat/completions", HELLO)
        assert status == 503 and body["error"]["code"] == "service_unavailable"
        gevent.sleep(1.5)
        waiting = gateway.workers()
        assert len(waiting) == 2 and not set(waiting) & set(before)
        way.open()
        wait_until(lambda: gateway.log().count("the worker is ready now") == 2)
        assert gateway.workers() == waiting, "they wait; they do not die and come again"
        assert gateway.post("/v1/chat/completions", HELLO)[0] == 200

        gateway.terminate()
        assert gateway.wait() == 0
        way.shut()
        starting = gevent.spawn(gateway.start)
        wait_until(lambda: get(gateway, "/livez")[0] == 200)
        assert get(gateway, "/readyz")[0] == 503 and "Warning: the database is unavailable" in gateway.log()
        way.open()
        starting.get(timeout=WAIT_S)
        wait_until(lambda: all(gateway.post("/v1/chat/completions", HELLO)[0] == 200 for _ in range(6)))
    finally:
        way.open()
        gateway.discard()


def test_a_first_start_without_its_database_is_one_line(tmp_path: Path) -> None:
    output = start_in_vain(tmp_path, DATABASE_URL=f"postgresql://gateway@127.0.0.1:{free_port()}/gateway", **SECRETS)
    assert output.startswith("error: DATABASE_URL: ") and "refused" in output
