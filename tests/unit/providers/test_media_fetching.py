"""Which contents of URLs are sent to a provider that loads none."""

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.parts import Audio, File, Image, Media, Message
from gateway.neutral.request import Requirements
from gateway.providers.media_fetching import fetch_media

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8
WAV = b"RIFF0000WAVEfmt "
PDF = b"%PDF-1.7"


class Web:
    """The network: every URL has the same content, or fails with `error`."""

    def __init__(self, body: bytes, error: UpstreamFailed | None = None) -> None:
        self.body, self.error = body, error
        self.headers: dict[str, str] = {}

    def keep(self) -> Any:
        return SimpleNamespace(grow=lambda size: None, release=lambda: None)

    def fetch(self, url: str, max_bytes: int, *, timeout_s: float, headers: dict[str, str]) -> Any:
        self.headers = headers
        if self.error:
            raise self.error
        return SimpleNamespace(status=200, body=self.body)


def loaded(web: Web, kind: type[Audio | File | Image]) -> Media:
    """Return the media of a message with a single part that has a URL."""
    message = Message("user", (kind(Media(url="https://album.example/1")),))
    request = ChatRequest("m", Requirements(), lambda: Conversation((message,)))
    return fetch_media(web, request, 5.0).conversation().messages[0].parts[0].media


def test_images_sound_and_documents_are_loaded_where_they_may_stand() -> None:
    for kind, body, media_type in (
        (Image, PNG, "image/png"),
        (File, PNG, "image/png"),
        (File, PDF, "application/pdf"),
        (Audio, WAV, "audio/wav"),
    ):
        assert loaded(Web(body), kind) == Media(media_type, data=base64.b64encode(body).decode())
    for kind, body in ((Image, PDF), (Image, WAV), (File, b"PK\x03\x04")):
        with pytest.raises(NotSupported, match="it is not an image"):
            loaded(Web(body), kind)


def test_a_failed_load_names_what_the_caller_can_change() -> None:
    for code, reason in (
        ("address_not_allowed", "does not lead to a public address"),
        ("response_too_large", "it is too large"),
        ("anything_else", "it cannot be reached"),
    ):
        with pytest.raises(NotSupported, match=reason):
            loaded(Web(b"", UpstreamFailed("refused", code=code)), Image)


def test_servers_that_refuse_clients_without_a_name_or_without_accepted_types_answer() -> None:
    web = Web(PNG)
    loaded(web, Image)
    assert web.headers["user-agent"] and "*/*" in web.headers["accept"]
