"""Tools that generate at another gateway, which MCP_GATEWAY_URL names: over https, with the caller's own key."""

import dataclasses
import socket
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from fakes.openai import Answer, FakeOpenAI
from gevent.monkey import get_original
from gevent.pywsgi import WSGIServer
from support.certificates import write_certificate
from support.gateways import LocalGateway
from support.mcp_visitor import Visitor, text
from support.shared import Share, usage_of

from gateway.surfaces.mcp import generation

get_ident = get_original("_thread", "get_ident")
MODEL = "openai/gpt-4o-mini"
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
SOURCES = {"x_source": "my-agent", "User_Agent": "agent/1", "X_Title": "Agent", "HTTP_Referer": "https://agent.example",
           "X_Request_Id": "request-of-an-agent"}  # fmt: skip


class TlsDoor:
    """The same gateway under another address, with TLS: so another gateway, with the same keys."""

    def __init__(self, certificate: str) -> None:
        self.calls: list[dict[str, Any]] = []
        self.gateway: LocalGateway | None = None
        self._server = WSGIServer(("127.0.0.1", 0), self._answer, log=None, keyfile=certificate, certfile=certificate)
        self._server.start()
        self.url = f"https://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ: dict[str, Any], start: Any) -> Any:
        self.calls.append(environ)
        assert self.gateway is not None
        return self.gateway.app(environ, start)

    def close(self) -> None:
        self._server.stop(timeout=1)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsDoor]:
    certificate = write_certificate(tmp_path_factory.mktemp("tls") / "gateway.pem", "127.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", certificate)  # the system's trusted certificates
        opened = TlsDoor(certificate)
        yield opened
        opened.close()


@pytest.fixture
def visitor(share: Share, door: TlsDoor, upstream_environment: dict[str, str], tmp_path: Path) -> Visitor:
    environment = upstream_environment | {"MCP_GATEWAY_URL": door.url, "GATEWAY_MEDIA_ALT_IMAGE_MODEL": "sandbox-image"}
    door.gateway = gateway = share.gateway(environment)
    door.calls.clear()
    return Visitor(gateway)


def test_a_chat_is_sent_there_with_the_callers_key(visitor: Visitor, door: TlsDoor, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=7, completion=3))
    answer = visitor.send(body=_call("chat", temperature=1, max_tokens=40, **CHAT), **SOURCES).json()["result"]
    assert text(answer) == "Good day.\n\n---\nTokens: 7 prompt, 3 completion, 10 total"
    (call,) = door.calls
    assert (call["REQUEST_METHOD"], call["PATH_INFO"]) == ("POST", "/v1/chat/completions")
    assert call["HTTP_AUTHORIZATION"] == f"Bearer {visitor.gateway.key}"
    for name, value in SOURCES.items():
        assert call.get(f"HTTP_{name.upper()}", call.get(name.upper())) == value
    (row,) = usage_of(visitor.gateway)  # only the other gateway bills, and only once
    assert row.source == "my-agent"


def test_no_header_decides_where_a_key_goes(visitor: Visitor, door: TlsDoor, upstream: FakeOpenAI) -> None:
    """A header that names this gateway as the other one does not change where the key is checked."""
    upstream.script(Answer("Good day."))
    for header in ({"Host": urlsplit(door.url).netloc}, {"X_Forwarded_Host": urlsplit(door.url).netloc}):
        door.calls.clear()
        visitor.send(body=_call("chat", **CHAT), **header).raise_for_status()
        assert [call["PATH_INFO"] for call in door.calls] == ["/v1/chat/completions"]


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def test_images_are_made_there(visitor: Visitor, door: TlsDoor) -> None:
    result = visitor.call("generate-image", prompt="A boat", n=2, model="sandbox/sandbox-image")
    assert [block["mimeType"] for block in result["content"]] == ["image/png"] * 2
    assert b64decode(result["content"][0]["data"]).startswith(b"\x89PNG")
    alt = visitor.call("generate-alt-image", prompt="A boat", aspect_ratio="4:3")
    assert [block["type"] for block in alt["content"]] == ["image"]
    assert [call["PATH_INFO"] for call in door.calls] == ["/v1/images/generations"] * 2
    assert len(usage_of(visitor.gateway)) == 2


def test_its_refusals_are_reported_with_their_codes(visitor: Visitor) -> None:
    refused = visitor.call("chat", **{**CHAT, "model": "no-such-model"})
    assert refused["isError"] and text(refused).startswith("400 model_not_found: ")


def test_a_response_of_another_server_is_a_tool_error(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve_other(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/html"), ("Content-Length", "6")])
        return [b"<html>"]

    monkeypatch.setattr(visitor.gateway, "app", serve_other)  # behind that door alone
    refused = visitor.call("chat", **CHAT)
    assert refused["isError"] and text(refused).startswith("502 ")


def answering(visitor: Visitor, patch: pytest.MonkeyPatch, status: str, body: bytes, **headers: str) -> None:
    """Replace the remote endpoint by a server that is not a gateway."""

    def serve_other(environ: dict[str, Any], start: Any) -> list[bytes]:
        start(status, [("Content-Length", str(len(body))), *headers.items()])
        return [body]

    patch.setattr(visitor.gateway, "app", serve_other)


MANY = b'{"choices":[],"more":[' + b"[]," * generation.MAX_PARTS + b"[]]}"
LONG = b'{"error":{"code":"x","message":"' + b"a" * generation.MAX_ERROR_BYTES + b'"}}'
ODD = b'{"error":{"code":"<b>odd</b>","message":"Slowly"}}'


@pytest.mark.parametrize(
    ("status", "body", "headers", "begins"),
    [
        ("200 OK", MANY, {}, "502 upstream_error: The other gateway returned an unexpected response"),
        ("500 Broken", LONG, {}, "500 upstream_error: The other gateway returned status 500"),
        ("400 Bad", ODD, {}, "400 upstream_error: Slowly"),
    ],
)
def test_responses_of_the_remote_gateway_are_bounded(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, status: str, body: bytes, headers: dict[str, str], begins: str
) -> None:
    answering(visitor, monkeypatch, status, body, **headers)
    refused = visitor.call("chat", **CHAT)
    assert refused["isError"] and text(refused).startswith(begins)


@pytest.mark.parametrize(("retry_after", "wait_s"), [("\xb2", 1), ("7", 7), ("9" * 9, 3600), ("9" * 400, 1)])
def test_how_long_it_wants_to_be_left_alone_is_believed_within_an_hour(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, retry_after: str, wait_s: int
) -> None:
    answering(visitor, monkeypatch, "429 Slow", ODD, **{"Retry-After": retry_after})
    refused = visitor.send(body=_call("chat", **CHAT))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, str(wait_s))


def test_a_large_answer_is_read_off_the_event_loop(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB held every other request of the worker for half a second."""
    threads, decode = [], msgspec.json.decode

    def noting(raw: bytes, **arguments: Any) -> Any:
        if arguments.get("type") is generation.SentImages:
            threads.append(get_ident())
        return decode(raw, **arguments)

    monkeypatch.setattr(msgspec.json, "decode", noting)
    for size in (3, 1 << 20):
        answering(visitor, monkeypatch, "200 OK", b'{"data":[{"b64_json":"%b"}]}' % (b"iVBO" * size))
        assert visitor.call("generate-image", prompt="A boat", model="sandbox/sandbox-image")["content"]
    assert (threads[0] == get_ident(), threads[1] == get_ident()) == (True, False)


def test_reports_and_lists_stay_here(visitor: Visitor, door: TlsDoor) -> None:
    for tool in ("get-account", "get-usage", "list-models", "list-image-models"):
        assert not visitor.call(tool).get("isError")
    assert door.calls == []


def test_a_key_never_goes_there_in_the_clear(share: Share) -> None:
    clear = Visitor(share.gateway({"MCP_GATEWAY_URL": "http://other.example.com"}, name="clear"))
    for tool, arguments in (
        ("chat", CHAT),
        ("generate-image", {"prompt": "A"}),
        ("generate-alt-image", {"prompt": "A"}),
    ):
        refused = clear.call(tool, **arguments)
        assert refused["isError"] and text(refused).startswith("400 generation_elsewhere: ")
    assert usage_of(clear.gateway) == [] and not clear.call("get-usage").get("isError")


def test_an_access_token_has_no_key_to_send(visitor: Visitor, door: TlsDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    authentication = visitor.gateway.services.accounts.authentication
    signed_in = dataclasses.replace(
        authentication.caller(visitor.gateway.key), grant_id="grant_1", scopes=("mcp:tools",)
    )
    monkeypatch.setattr(authentication, "caller", lambda token: signed_in)
    refused = visitor.call("chat", **CHAT)
    assert refused["isError"] and "generation_elsewhere" in text(refused) and "API key" in text(refused)
    assert door.calls == [] and not visitor.call("get-account").get("isError")


def test_a_gateway_that_is_named_by_its_own_address_generates_itself(share: Share, upstream: FakeOpenAI) -> None:
    own = {"MCP_GATEWAY_URL": "https://llm.example.com", "GATEWAY_SERVER_PUBLIC_URL": "https://llm.example.com"}
    visitor = Visitor(share.gateway(own, name="own"))
    result = visitor.call("chat", **{**CHAT, "model": "sandbox/sandbox-echo"})
    assert not result.get("isError") and len(usage_of(visitor.gateway)) == 1


def test_an_unreachable_gateway_is_a_tool_error(share: Share) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        away = Visitor(share.gateway({"MCP_GATEWAY_URL": url}, name="away"))
        refused = away.call("chat", **CHAT)
    assert refused["isError"] and text(refused).startswith("502 ")
