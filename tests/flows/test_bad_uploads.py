"""Every upload that is not what it should be: its status, code and field, on each operation that takes a form; nothing
reaches an upstream, nothing is billed, and nothing stays on the disk."""

import gzip
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import gevent
import httpx
import pytest
from fakes.transcription_services import FakeTranscriptionServices
from support.gateways import LocalGateway
from support.media import providers_at
from support.shared import Share
from support.uploads import spooled_files

from gateway.providers.sandbox import speech
from gateway.providers.sandbox.images import png

WAV, PNG = speech.make("wav", 1.0), png(4, 4, "a")
EDGE = "edge-of-parts"
FORM = f"multipart/form-data; boundary={EDGE}"


class Operation:
    """One that takes a form: where, with which file field, and which fields it cannot do without."""

    def __init__(self, path: str, name: str, good: bytes, **fields: str) -> None:
        self.path, self.name, self.good, self.fields = path, name, good, fields

    def form(self, file: bytes | None = None, name: str = "", times: int = 1, **changes: str | None) -> bytes:
        fields = {key: value for key, value in (self.fields | changes).items() if value is not None}
        wire = b"".join(
            f'--{EDGE}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
            for key, value in fields.items()
        )
        head = f'--{EDGE}\r\nContent-Disposition: form-data; name="{name or self.name}"; filename="a"\r\n\r\n'.encode()
        part = head + (self.good if file is None else file) + b"\r\n"
        return wire + part * times + f"--{EDGE}--\r\n".encode()


HEAR = Operation("/audio/transcriptions", "file", WAV, model="openai/whisper-1")
TRANSLATE = Operation("/audio/translations", "file", WAV, model="openai/whisper-1")
PAINT = Operation("/images/edits", "image", PNG, model="openai/gpt-image-1", prompt="A fox")
ALL = pytest.mark.parametrize("operation", [HEAR, TRANSLATE, PAINT], ids=lambda operation: operation.path)


class Upstream(FakeTranscriptionServices):
    """A transcription service, which also gets image requests and ignores them."""


@pytest.fixture
def upstream(share: Share) -> Upstream:
    return share.fake(Upstream)


@pytest.fixture
def gateway(share: Share, upstream: Upstream) -> LocalGateway:
    return share.gateway(providers_at(upstream, {"OPENAI": "/v1"}))


@pytest.fixture(autouse=True)
def nothing_reached_anybody(gateway: LocalGateway, upstream: Upstream) -> Iterator[None]:
    calls, files = len(upstream.calls), spooled_files()
    balance = gateway.services.billing.ledger.balance(gateway.organization_id).balance_nusd
    yield
    assert len(upstream.calls) == calls
    gateway.services.store.journal.flush(60)
    assert gateway.services.billing.ledger.balance(gateway.organization_id).balance_nusd == balance
    left = wait_for_no_files(files)
    assert not left


def wait_for_no_files(known: set[str]) -> set[str]:
    """Return the files besides `known` that remain shortly after a response, without a garbage collection."""
    for _ in range(200):
        left = spooled_files() - known
        if not left:
            break
        gevent.sleep(0.01)
    return left


def send(gateway: LocalGateway, operation: Operation, body: bytes, kind: str = FORM, **headers: str) -> tuple:
    """Status, code and field of the error."""
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": kind, **headers}
    with httpx.Client(timeout=20) as http:
        answer = http.post(gateway.url + operation.path, content=body, headers=headers)
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


@ALL
def test_a_file_of_no_bytes(gateway, operation):
    assert send(gateway, operation, operation.form(b"")) == (400, "empty_file", operation.name)


@ALL
@pytest.mark.parametrize("file", [b"<html></html>", b"%PDF-1.7\n", b"PK\x03\x04", b"\x7fELF", b"\0" * 64])
def test_a_file_of_another_type_whatever_it_calls_itself(gateway, operation, file):
    assert send(gateway, operation, operation.form(file)) == (400, "unsupported_media", operation.name)


@ALL
def test_a_body_that_ends_before_its_form_does(gateway, operation):
    whole = operation.form()
    for cut in (len(whole) - 6, len(whole) // 2, 40):
        assert send(gateway, operation, whole[:cut])[:2] == (400, "malformed_form")


@ALL
@pytest.mark.parametrize("kind", [FORM + "-other", "multipart/form-data", "multipart/form-data; boundary="])
def test_a_boundary_that_is_not_the_bodys(gateway, operation, kind):
    assert send(gateway, operation, operation.form(), kind)[:2] == (400, "malformed_form")


@ALL
@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "application/x-www-form-urlencoded"])
def test_no_form_at_all(gateway, operation, kind):
    status, code, _ = send(gateway, operation, operation.form(), kind)
    assert status in (400, 415) and code in ("invalid_content_type", "unsupported_media_type")


@pytest.mark.parametrize("operation", [HEAR, TRANSLATE], ids=lambda operation: operation.path)
def test_two_files_where_one_is_allowed(gateway, operation):
    assert send(gateway, operation, operation.form(times=2))[:2] == (400, "too_many_parts")


def test_more_pictures_than_allowed(gateway):
    status, code, _ = send(gateway, PAINT, PAINT.form(times=17))
    assert (status, code) in ((400, "invalid_parameters"), (400, "too_many_parts"))


@ALL
def test_more_fields_than_allowed(gateway, operation):
    many = {f"f{number}": "x" for number in range(300)}
    assert send(gateway, operation, operation.form(**many))[:2] == (400, "too_many_parts")


@ALL
def test_a_field_that_is_too_long(gateway, operation):
    assert send(gateway, operation, operation.form(extra="x" * (2 << 20)))[:2] == (413, "request_too_large")


@ALL
def test_a_field_that_is_no_text(gateway, operation):
    body = operation.form(language="LANG").replace(b"LANG", b"\xff\xfe")
    assert send(gateway, operation, body) == (400, "invalid_parameters", "language")


@pytest.mark.parametrize(("operation", "missing"), [(HEAR, "model"), (TRANSLATE, "model"), (PAINT, "prompt")])
def test_a_field_that_is_missing(gateway, operation, missing):
    assert send(gateway, operation, operation.form(**{missing: None})) == (400, "invalid_parameters", missing)


@ALL
def test_a_length_that_passes_the_cap_is_refused_before_the_body(gateway, operation):
    maximum = gateway.services.settings.server.max_form_mb << 20
    head = f"POST /v1{operation.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
    head += f"Content-Type: {FORM}\r\nContent-Length: {maximum + 1}\r\n\r\n"
    with socket.create_connection((urlsplit(gateway.url).hostname, urlsplit(gateway.url).port)) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"request_too_large"' in answer


@ALL
def test_a_compressed_body_that_grows_past_the_cap(gateway, operation):
    bomb = gzip.compress(operation.form(bytes(40 << 20)))
    status, code, _ = send(gateway, operation, bomb, **{"Content-Encoding": "gzip"})
    assert (status, code) in ((413, "request_too_large"), (400, "unsupported_media"))


@ALL
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
def test_a_body_that_is_not_compressed_as_it_says(gateway, operation, coding):
    status, _, _ = send(gateway, operation, operation.form(), **{"Content-Encoding": coding})
    assert status in (400, 415)
