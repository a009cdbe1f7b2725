"""The targets of the measurement: the mock itself, a bare relay and the gateway; `bench.peers` has the others."""

import contextlib
import http.client
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.processes import TARGET_CORE, BenchError, Process, refuse_taken, running, wait_for_port

ROOT = Path(__file__).resolve().parent.parent
KEY = "llmgtwy_benchmark_key_of_this_run_only_0001"
MODEL = "openai/gpt-4o-mini"
PATH = "/v1/chat/completions"
AI_PATH = "/v4/ai/language-model"
TOOLS_PATH = "/mcp"
READY_S = 60.0
MOCK_PORTS = 3  # 200, 500, 429
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "PYTHON_JIT")


@dataclass(frozen=True, slots=True)
class Target:
    """Something to send requests to.

    `process` is None for the mock itself, `start_s` is the time to readiness, `model` its name of the measured model,
    and `headers` are header lines that it needs besides those of the gateway.
    """

    name: str
    port: int
    process: Process | None
    start_s: float = 0.0
    model: str = MODEL
    headers: str = ""


@contextlib.contextmanager
def start_relay(port: int, mock: int, folder: Path) -> Iterator[Target]:
    """The gateway's worker and transport alone."""
    factory = f"bench.relay:create_app('http://127.0.0.1:{mock}')"
    environment = clean_environment() | {"HOST": "127.0.0.1", "PORT": str(port), "WEB_CONCURRENCY": "1"}
    command = [sys.executable, "-m", "gunicorn", "-c", str(ROOT / "gunicorn.conf.py"), "--chdir", str(ROOT), factory]
    with running("relay", command, TARGET_CORE, folder, environment) as process:
        yield Target("relay", port, process, wait_until_ready(process, port, "/"))


@contextlib.contextmanager
def start_gateway(
    port: int,
    mock: int,
    folder: Path,
    more: Mapping[str, str] | None = None,
    settings: Path | None = None,
    root: Path = ROOT,
    python: str = sys.executable,
    name: str = "gateway",
) -> Iterator[Target]:
    """The whole gateway in an empty data folder, with its defaults: authentication, limits, usage and ledger on.

    `more` are further variables of its environment, `settings` those of gunicorn, `root` the checkout that is run,
    `python` the interpreter that runs it, and `name` that of the target.
    """
    environment = clean_environment() | {
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "WEB_CONCURRENCY": "1",
        "GATEWAY_DATA_DIR": str(folder / "data"),
        "GATEWAY_BOOTSTRAP_API_KEY": KEY,
        "GATEWAY_METRICS_TOKEN": KEY,
        "GATEWAY_BOOTSTRAP_CREDITS_USD": "1000000",
        "LLM_OPENAI_BASE_URL": f"http://127.0.0.1:{mock}/v1",
        "LLM_OPENAI_API_KEY": "x",
        "PYTHONPATH": str(root),
        **(more or {}),
    }
    command = [python, "-m", "gateway.operator.command", "serve", "--", "--chdir", str(root)]
    command += ["-c", str(settings or root / "gunicorn.conf.py")]
    with running("gateway", command, TARGET_CORE, folder, environment, root) as process:
        yield Target(name, port, process, wait_until_ready(process, port, "/readyz"))


Starter = Callable[[int, int, Path], contextlib.AbstractContextManager[Target]]
OWN: dict[str, Starter] = {"relay": start_relay, "gateway": start_gateway}


@contextlib.contextmanager
def start_targets(starters: Mapping[str, Starter], base_port: int, folder: Path, mock: Path) -> Iterator[list[Target]]:
    """Start the mock and each named target, and check one plain and one streamed answer of each."""
    ports = {name: base_port + MOCK_PORTS + index for index, name in enumerate(starters)}
    for port in [*range(base_port, base_port + MOCK_PORTS), *ports.values()]:
        refuse_taken(port)
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(running("mock", [str(mock), str(base_port)], 1, folder))
        wait_for_port(upstream, base_port)
        targets = [Target("direct", base_port, None)]
        for name, starter in starters.items():
            own = folder / name
            own.mkdir()
            targets.append(stack.enter_context(starter(ports[name], base_port, own)))
        for target in targets:
            check_answers(target)
        yield targets


def write_ai_request(port: int, prompt: str, stream: bool, model: str) -> bytes:
    """The same question in the protocol of the AI SDK."""
    body = (
        '{"maxOutputTokens":200,"temperature":0.7,"prompt":['
        '{"role":"system","content":"You are a helpful assistant that answers briefly."},'
        f'{{"role":"user","content":[{{"type":"text","text":"Say hello. {prompt}"}}]}}],'
        '"headers":{"user-agent":"bench"},"toolChoice":{"type":"auto"}}'
    )
    head = (
        f"POST {AI_PATH} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n"
        f"user-agent: bench\r\naccept: */*\r\ncontent-type: application/json\r\n"
        f"ai-gateway-protocol-version: 0.0.1\r\nai-gateway-auth-method: api-key\r\n"
        f"ai-language-model-specification-version: 4\r\nai-language-model-id: {model}\r\n"
        f"ai-language-model-streaming: {str(stream).lower()}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def write_tool_request(port: int, method: str, params: str) -> bytes:
    """One message to `/mcp`; `params` is JSON."""
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'
    head = (
        f"POST {TOOLS_PATH} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n"
        f"user-agent: bench\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
        f"mcp-protocol-version: 2025-11-25\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def write_request(port: int, prompt: str, stream: bool, model: str = MODEL) -> bytes:
    """The bytes of one chat completion request for the mock, straight or through a gateway."""
    flag = ',"stream":true,"stream_options":{"include_usage":true}' if stream else ""
    body = (
        f'{{"model":"{model}"{flag},"temperature":0.7,"max_tokens":200,"messages":['
        '{"role":"system","content":"You are a helpful assistant that answers briefly."},'
        f'{{"role":"user","content":"Say hello. {prompt}"}}]}}'
    )
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n"
        f"user-agent: bench\r\naccept: application/json\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def check_answers(target: Target) -> None:
    """BenchError unless the target answers a plain and a streamed request as the mock means them."""
    plain = post(target, stream=False)
    if b"fixed answer of" not in plain or b'"usage"' not in plain:
        raise BenchError(f"{target.name} does not pass the answer on: {plain[:500]!r}")
    streamed = post(target, stream=True)
    if streamed.count(b'"content":"t') != 50 or b"data: [DONE]" not in streamed:
        raise BenchError(f"{target.name} does not pass the stream on: {streamed[-500:]!r}")


def add_headers(request: bytes, target: Target) -> bytes:
    """Return a request with the header lines that its target needs."""
    line, end, rest = request.partition(b"\r\n")
    return line + end + target.headers.encode() + rest


def post(target: Target, stream: bool) -> bytes:
    """The body of one answer. BenchError for a status other than 200."""
    port = target.port
    request = add_headers(write_request(port, "", stream, target.model), target)
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", PATH, body, {name: value for name, value in lines})
        response = connection.getresponse()
        data = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"port {port} does not answer: {error!r}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise BenchError(f"port {port} answers {response.status}: {data[:500]!r}")
    return data


def read_metric(port: int, name: str) -> float:
    """One figure of the gateway's `/metrics`, without labels. BenchError when it is not there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"authorization": f"Bearer {KEY}"})
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"port {port} does not tell its metrics: {error!r}") from None
    finally:
        connection.close()
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise BenchError(f"the metrics of port {port} have no {name}: {text[:500]!r}")


def wait_until_ready(process: Process, port: int, path: str) -> float:
    """Seconds from the start until GET `path` is answered 200."""
    began = time.monotonic()
    wait_for_port(process, port, READY_S)
    while time.monotonic() < began + READY_S and process.popen.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return time.monotonic() - began
        connection.close()
        time.sleep(0.01)
    raise BenchError(f"{process.name} ended or was not ready within {READY_S:g} s:\n{process.tail()}")


def clean_environment() -> dict[str, str]:
    """The few variables that a target needs; settings of the user who runs the benchmark must not affect it."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}
