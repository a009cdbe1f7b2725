"""Images and files by address reach providers that load nothing themselves, as bytes and through the guard."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest
from fakes.openai import FakeOpenAI
from fakes.server import FakeServer, send_json
from openai import APIStatusError, BadRequestError, OpenAI
from support.gateways import LocalGateway, local_gateway

from gateway.configuration.settings import Settings
from gateway.neutral.file_types import type_of
from gateway.providers import media_fetching

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100
PDF = b"%PDF-1.7 " + b"0" * 100
PROVIDER = """name = "Blind"
protocol = "openai"
address = "{address}"
credential = ["BLIND_KEY"]
quirks = ["inline_media"]

[[mappings]]
model = "coin"
external_id = "coin"
vision = true
documents = true
tools = true
prices = {{ prompt = "0.000001", completion = "0.000002" }}
"""
MODEL = '[[models]]\nid = "coin"\nname = "Coin"\nfamily = "test"\ninput_modalities = ["text", "image"]\n'


class Album(FakeServer):
    """Serves pictures; what it calls them is no help."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        path = environ["PATH_INFO"]
        self.calls.append((path, environ.get("HTTP_USER_AGENT", "")))
        bodies = {"/a.jpg": PNG, "/b": PDF, "/page": b"<html>", "/large": PNG + b"0" * 5000}
        if path == "/moved":
            start("302 Found", [("Location", "/a.jpg"), ("Content-Length", "0")])
            return iter([])
        if path not in bodies:
            return send_json(start, 404, {})
        start("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(bodies[path])))])
        return iter([bodies[path]])


@pytest.fixture
def album() -> Iterator[Album]:
    with Album() as fake:
        yield fake


@pytest.fixture
def blind(
    settings: Callable[..., Settings], upstream: FakeOpenAI, tmp_path: Any
) -> Iterator[Callable[..., LocalGateway]]:
    """A factory of gateways with a provider that accepts no URLs."""
    for name, text in (("providers", PROVIDER.format(address=upstream.url)), ("models", MODEL)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "blind.toml").write_text(text)
    running = []

    def start(**environment: str) -> LocalGateway:
        own = {"GATEWAY_CATALOGUE_PATH": str(tmp_path), "BLIND_KEY": "k"}
        running.append(local_gateway(settings, **own, **environment))
        return running[-1].__enter__()

    yield start
    for running_gateway in running:
        running_gateway.__exit__(None, None, None)


def look(gateway: LocalGateway, *urls: str, stream: bool = False) -> Any:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    talk = [{"role": "user", "content": [{"type": "text", "text": "?"}, *parts]}]
    answer = client.chat.completions.create(model="blind/coin", messages=talk, stream=stream)
    return list(answer) if stream else answer


def test_an_image_by_address_arrives_as_bytes_of_its_real_type(
    blind: Callable[..., LocalGateway], album: Album, upstream: FakeOpenAI
) -> None:
    gateway = blind(GATEWAY_ALLOW_PRIVATE_MEDIA="true")
    assert look(gateway, f"{album.url}/a.jpg", f"{album.url}/moved", f"{album.url}/a.jpg").choices
    sent = [part["image_url"]["url"] for part in upstream.calls[-1].body["messages"][0]["content"][1:]]
    assert sent == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"] * 3
    # Each URL is loaded once, with a user agent that names the gateway.
    assert sorted(call[0] for call in album.calls) == ["/a.jpg", "/a.jpg", "/moved"]
    assert all(agent for _, agent in album.calls)


def test_a_file_by_address_reaches_a_format_without_addresses(
    blind: Callable[..., LocalGateway], album: Album, upstream: FakeOpenAI
) -> None:
    gateway = blind(GATEWAY_ALLOW_PRIVATE_MEDIA="true")
    client = anthropic.Anthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0)
    document = {"type": "document", "source": {"type": "url", "url": f"{album.url}/b"}}
    talk = [{"role": "user", "content": [document, {"type": "text", "text": "?"}]}]
    assert client.messages.create(model="blind/coin", max_tokens=50, messages=talk).content
    file = upstream.calls[-1].body["messages"][0]["content"][0]["file"]
    assert file["file_data"] == f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/page", "it is not an image"),
        ("/b", "it is not an image"),
        ("/nothing", "answers 404"),
        ("/large", "too large"),
    ],
)
def test_media_that_cannot_be_loaded_is_an_error_for_the_caller(
    blind: Callable[..., LocalGateway],
    album: Album,
    upstream: FakeOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    message: str,
) -> None:
    monkeypatch.setattr(media_fetching, "MAX_BYTES", 1000)
    gateway = blind(GATEWAY_ALLOW_PRIVATE_MEDIA="true")
    with pytest.raises(BadRequestError, match=message) as caught:
        look(gateway, album.url + path)
    assert (caught.value.code, caught.value.param) == ("media_not_loaded", "messages")
    assert not upstream.calls


def test_addresses_whose_contents_are_too_large_together_are_not_all_loaded(
    blind: Callable[..., LocalGateway], album: Album, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 2 KB with twenty addresses took 690 MB of a worker before it was refused."""
    monkeypatch.setattr(media_fetching, "MAX_TOTAL_BYTES", 4 * len(PNG))
    gateway = blind(GATEWAY_ALLOW_PRIVATE_MEDIA="true")
    with pytest.raises(BadRequestError, match="together they exceed"):
        look(gateway, *(f"{album.url}/a.jpg?{number}" for number in range(20)))
    assert len(album.calls) <= 5 + media_fetching.CONCURRENT_FETCHES
    assert gateway.services.background.bodies.held == 0


@pytest.mark.parametrize("stream", [False, True])
def test_contents_of_addresses_count_against_the_memory_of_their_organization(
    blind: Callable[..., LocalGateway], album: Album, upstream: FakeOpenAI, stream: bool
) -> None:
    gateway = blind(GATEWAY_ALLOW_PRIVATE_MEDIA="true")
    bodies = gateway.services.background.bodies
    room = media_fetching.COPIES * len(PNG)
    bodies.grow(gateway.organization_id, bodies._max_each - bodies.held - room)
    assert look(gateway, f"{album.url}/a.jpg", stream=stream)
    with pytest.raises(APIStatusError, match="too many large bodies") as caught:
        look(gateway, f"{album.url}/a.jpg", f"{album.url}/a.jpg?2", stream=stream)
    assert caught.value.status_code == 529 and len(upstream.calls) == 1
    upstream.script(500, 500, 500)
    with pytest.raises(APIStatusError):
        look(gateway, f"{album.url}/a.jpg", stream=stream)
    assert bodies._max_each - bodies.held == room, "whatever its end, a request releases what it loaded"


def test_an_address_inside_the_network_is_never_loaded(
    blind: Callable[..., LocalGateway], album: Album, upstream: FakeOpenAI
) -> None:
    with pytest.raises(BadRequestError, match="not lead to a public address"):
        look(blind(), f"{album.url}/a.jpg")
    assert not album.calls and not upstream.calls


def test_private_upstreams_let_no_caller_look_into_the_network(
    blind: Callable[..., LocalGateway], album: Album, upstream: FakeOpenAI
) -> None:
    gateway = blind(GATEWAY_ALLOW_PRIVATE_UPSTREAMS="true")
    for path in ("/a.jpg", "/moved"):
        with pytest.raises(BadRequestError, match="not lead to a public address"):
            look(gateway, album.url + path)
    assert not album.calls and not upstream.calls


def test_types_are_reported_by_their_first_bytes() -> None:
    known = {b"\xff\xd8\xff\xe0": "jpeg", b"GIF89a": "gif", b"RIFF0000WEBPVP8": "webp", b"0000ftypheic": "heic"}
    assert {start: type_of(start) for start in known} == {start: f"image/{k}" for start, k in known.items()}
    sounds = {b"RIFF0000WAVE": "wav", b"ID3\x04": "mpeg", b"OggS": "ogg", b"fLaC": "flac", b"0000ftypM4A ": "mp4"}
    assert {start: type_of(start) for start in sounds} == {start: f"audio/{k}" for start, k in sounds.items()}
    assert type_of(b"<svg xmlns") == type_of(b"RIFF0000AVI ") == type_of(b"") == ""
