"""The nginx of deploy/ with TLS before a gateway: what callers see of it, and what it says where the gateway says
nothing."""

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import gevent
import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from support.fleet import wait_until
from support.gateways import GatewayProcess, free_port
from support.programs import find_program
from support.proxy import CONFIGURATION, Nginx, uncomment_path, write_certificate

MODEL = "openai/gpt-4o-mini"
MB = 1 << 20
Front = tuple[Nginx, GatewayProcess]


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture(scope="module")
def front(upstream: FakeOpenAI, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """nginx as deploy/nginx.conf has it, its example of a path switched on, before a gateway that it may speak for."""
    find_program("nginx", "nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    environment = {
        "LLM_OPENAI_API_KEY": "sk-upstream",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "false",
        "CLIENT_IP_HEADER": "x-forwarded-for",
        "GATEWAY_METRICS_TOKEN": "scraper",
        "GATEWAY_LOG_REQUESTS": "json",
    }
    gateway = GatewayProcess(folder / "data", **environment)
    nginx = Nginx(folder, [gateway.port], edit=uncomment_path)
    try:
        gateway.start()
        wait_until(lambda: listens(nginx.port))
        yield nginx, gateway
    finally:
        nginx.stop()
        gateway.discard()


@pytest.fixture(scope="module")
def http(front: Front) -> Iterator[httpx.Client]:
    nginx, gateway = front
    with httpx.Client(base_url=nginx.address, verify=trust(nginx), timeout=30) as client:
        client.headers["Authorization"] = f"Bearer {gateway.key}"
        yield client


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def trust(nginx: Nginx) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(nginx.certificate))


@contextmanager
def secured(nginx: Nginx, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """A connection without any HTTP client in between."""
    with (
        socket.create_connection(("127.0.0.1", nginx.port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        yield secure


def say(nginx: Nginx, *lines: str) -> tuple[int, Any]:
    """Status and JSON of the answer to a head of these lines."""
    with secured(nginx, trust(nginx)) as secure:
        secure.sendall("\r\n".join([*lines, "", ""]).encode())
        reply = HTTPResponse(secure)
        reply.begin()
        assert reply.getheader("content-type") == "application/json"
        return reply.status, json.loads(reply.read())


def chat(text: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def error_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/json"
    return answer.json()["error"]


def test_a_client_with_untouched_defaults_gets_each_event_before_the_next_is_sent(
    front: Front, upstream: FakeOpenAI
) -> None:
    nginx, gateway = front
    upstream.script(Answer("One two three four five.", gap_s=0.3))
    with httpx.Client(verify=trust(nginx), timeout=60) as own:
        client = OpenAI(base_url=f"{nginx.address}/v1", api_key=gateway.key, http_client=own)
        stream = client.chat.completions.create(**chat(), stream=True)
        sent = [upstream.calls[-1].sent for part in stream if part.choices]
    # The first event says who speaks and comes with the second; behind a buffer all would come at the end.
    assert len(sent) >= 4 and len(set(sent)) >= 3 and sent[1] < sent[-1], sent


def test_its_tls_is_of_today_and_speaks_http_2(front: Front) -> None:
    nginx, _ = front
    context = trust(nginx)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with secured(nginx, context) as secure:
        assert secure.version() == "TLSv1.3" and secure.selected_alpn_protocol() == "h2"
    old = trust(nginx)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError), secured(nginx, old):
        pytest.fail("it took TLS 1.1")


def test_streams_and_large_bodies_pass_over_http_2_too(front: Front, upstream: FakeOpenAI, tmp_path: Path) -> None:
    """As clients in Go and Java speak by default; curl stands for them."""
    nginx, gateway = front
    curl = [find_program("curl", "curl"), "-sSN", "--http2", "--cacert", str(nginx.certificate), "-X", "POST"]
    curl += [
        "-H",
        f"Authorization: Bearer {gateway.key}",
        "-H",
        "Content-Type: application/json",
        "-w",
        "\n%{http_version}",
    ]
    upstream.script(Answer("One two three four five.", gap_s=0.3))
    body = json.dumps(chat(stream=True))
    curl_process = subprocess.Popen(
        [*curl, f"{nginx.address}/v1/chat/completions", "-d", body], stdout=subprocess.PIPE, text=True
    )
    assert curl_process.stdout is not None
    lines = [
        (output_line.strip(), upstream.calls[-1].sent) for output_line in curl_process.stdout if output_line.strip()
    ]
    assert curl_process.wait(20) == 0 and [line for line, _ in lines[-2:]] == ["data: [DONE]", "2"]
    sent = [sent for line, sent in lines if '"content"' in line]
    assert len(set(sent)) >= 3, "more was sent before each came"
    large = tmp_path / "large.json"
    large.write_text(json.dumps(chat("x" * (30 * MB))))
    done = subprocess.run(
        [*curl, f"{nginx.address}/v1/chat/completions", "--data-binary", f"@{large}"], capture_output=True, text=True
    )
    text, version = done.stdout.rsplit("\n", 1)
    assert version == "2" and json.loads(text)["error"]["code"] != "request_too_large"


def test_browsers_are_reported_once_to_stay_with_tls(http: httpx.Client) -> None:
    answer = http.get("/v1/models")
    assert answer.status_code == 200 and len(answer.headers.get_list("strict-transport-security")) == 1
    assert "server" not in answer.headers or "/" not in answer.headers["server"], "no version"


def test_the_gateway_sees_the_callers_address_and_not_what_they_say_of_it(http: httpx.Client, front: Front) -> None:
    label = "forwarded-1"
    http.get("/v1/models", headers={"x-forwarded-for": "6.6.6.6", "x-request-id": label})
    wait_until(lambda: label in front[1].log())
    (line,) = (json.loads(line) for line in front[1].log().splitlines() if label in line)
    assert line["ip"] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "//metrics", "/Metrics", "/%6detrics", "/v1/../metrics"])
def test_metrics_are_closed_however_they_are_spelled(http: httpx.Client, front: Front, path: str) -> None:
    status, body = say(front[0], f"GET {path} HTTP/1.1", "Host: localhost", "Authorization: Bearer scraper")
    assert status == 404 and body["error"]["code"] == "not_found"
    # It is nginx that closes them: the gateway would tell the scraper.
    answer = httpx.get(f"{front[1].address}/metrics", headers={"Authorization": "Bearer scraper"}, timeout=60)
    assert answer.status_code == 200


def test_a_large_body_passes_and_the_gateways_own_cap_speaks_for_itself(http: httpx.Client) -> None:
    passed = http.post("/v1/chat/completions", json=chat("x" * (30 * MB)))
    assert passed.headers["x-request-id"] and error_of(passed)["code"] != "request_too_large"
    refused = http.post("/v1/chat/completions", json=chat("x" * (33 * MB)))
    assert refused.status_code == 413 and error_of(refused)["code"] == "request_too_large"
    assert refused.headers["x-request-id"]


def test_an_upload_of_thirty_megabytes_passes(http: httpx.Client) -> None:
    answer = http.post(
        "/v1/audio/transcriptions",
        data={"model": MODEL},
        files={"file": ("long.wav", b"RIFF" + b"\0" * (30 * MB), "audio/wav")},
    )
    assert answer.headers["x-request-id"] and answer.status_code != 413, answer.text


def test_bodies_above_every_limit_are_refused_before_they_are_sent(front: Front) -> None:
    for path, dialect in (("/v1/chat/completions", None), ("/v1/messages", "error")):
        status, body = say(front[0], f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {129 * MB}")
        assert status == 413 and body["error"]["code"] == "request_too_large" and body["error"]["message"]
        assert body.get("type") == dialect


def test_a_head_that_cannot_be_read_is_a_json_error(front: Front) -> None:
    for header in ("Host: a b", f"Host: a\r\nx: {'y' * 40000}"):
        status, body = say(front[0], "GET / HTTP/1.1", header)
        assert status == 400 and body["error"]["code"] == "malformed_request"


@pytest.mark.parametrize(
    ("line", "status"),
    [("GET /docs/../../x HTTP/1.1", 400), ("get / HTTP/1.1", 400), (f"GET /{'a' * 9_000} HTTP/1.1", 414)],
)
def test_a_request_line_that_cannot_be_read_is_a_json_error(front: Front, line: str, status: int) -> None:
    answered, body = say(front[0], line, "Host: localhost")
    assert (answered, body["error"]["code"]) == (status, "malformed_request")


def test_without_tls_nothing_is_answered(front: Front) -> None:
    plain = f"http://127.0.0.1:{front[0].plain_port}"
    looked = httpx.get(f"{plain}/console?x=1", timeout=60)
    assert looked.status_code == 308 and looked.headers["location"] == "https://127.0.0.1/console?x=1"
    sent = httpx.post(
        f"{plain}/v1/chat/completions", json=chat(), headers={"Authorization": "Bearer secret"}, timeout=60
    )
    assert sent.status_code == 403 and error_of(sent)["code"] == "https_required"


def test_a_websocket_is_passed_on_as_one(http: httpx.Client) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    answer = http.get("/v1/nothing", headers={**headers, "Sec-WebSocket-Key": "eA=="})
    assert answer.status_code == 426 and error_of(answer)["code"] == "websocket_not_supported"


def test_the_example_of_a_path_leads_to_the_same_gateway(http: httpx.Client) -> None:
    assert http.get("/llm/v1/models").json() == http.get("/v1/models").json()
    assert http.post("/llm/v1/chat/completions", json=chat()).status_code == 200


def test_gateways_errors_pass_as_they_are(http: httpx.Client, upstream: FakeOpenAI) -> None:
    upstream.script(*[Answer(status=500)] * 8)
    answer = http.post("/v1/chat/completions", json=chat())
    upstream.script()
    assert answer.status_code == 502 and error_of(answer)["code"] != "service_unavailable"
    assert answer.headers["x-request-id"]


def test_a_gateway_that_is_away_is_a_json_error_that_clients_try_again(tmp_path: Path) -> None:
    away = Nginx(tmp_path, [free_port()])
    try:
        wait_until(lambda: listens(away.port))
        with httpx.Client(base_url=away.address, verify=trust(away), timeout=60) as http:
            for path, kind in (("/v1/chat/completions", None), ("/v1/messages", "error")):
                answer = http.post(path, json=chat())
                assert answer.status_code == 502 and error_of(answer)["code"] == "service_unavailable"
                assert answer.headers["retry-after"] == "2" and answer.json().get("type") == kind
    finally:
        away.stop()


def test_one_that_is_silent_and_a_caller_with_too_many_connections_are_json_errors(tmp_path: Path) -> None:
    def hurry(text: str) -> str:
        """A second of patience, and one connection an address."""
        text = text.replace("proxy_read_timeout 1500s", "proxy_read_timeout 1s")
        return text.replace("addresses 1024", "addresses 1")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        nginx = Nginx(tmp_path, [silent.getsockname()[1]], edit=hurry)
        try:
            wait_until(lambda: listens(nginx.port))
            with httpx.Client(base_url=nginx.address, verify=trust(nginx), timeout=60) as http:
                waiting = gevent.spawn(http.post, "/v1/chat/completions", json=chat())
                accepted = silent.accept()
                refused = http.post("/v1/chat/completions", json=chat())
                late = waiting.get(timeout=60)
                accepted[0].close()
        finally:
            nginx.stop()
    assert late.status_code == 504 and error_of(late)["code"] == "timeout"
    assert refused.status_code == 429 and error_of(refused)["code"] == "rate_limit_exceeded"
    assert refused.headers["retry-after"] == "1"


def test_nginx_takes_the_file_with_nothing_to_remark(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    write_certificate(folder)
    text = CONFIGURATION.read_text().replace("/etc/nginx/tls", str(folder)).replace("/var/log/nginx", str(tmp_path))
    # A program out of its package has none of the folders that the package makes.
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    text = uncomment_path(text).replace("http {", f"http {{ {places}", 1)
    (tmp_path / "nginx.conf").write_text(text)
    command = [find_program("nginx", "nginx-light"), "-t", "-c", str(tmp_path / "nginx.conf")]
    command += ["-g", f"pid {tmp_path}/nginx.pid;", "-e", str(tmp_path / "error.log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and "[warn]" not in done.stderr, done.stderr
