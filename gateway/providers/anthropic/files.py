"""Anthropic's files API, which is a beta feature.

Source: Anthropic API reference, "Files" (POST, GET and DELETE /v1/files; `expires_in_seconds`; the header
anthropic-beta).
"""

from typing import Any
from urllib.parse import quote

from msgspec import Struct, json

from gateway.dialects.anthropic_betas import FILES_BETA
from gateway.providers.batches.batch_codec import read_struct, seconds_of
from gateway.providers.files.file_codec import DAY_S, FileContent, ProviderFile, lifetime_within
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.openai.files import write_form
from gateway.providers.protocol import Call, Target, UpstreamReply

PATH = "/files"
MAX_LIFETIME_S = 30 * DAY_S


class _SentFile(Struct):
    id: str
    expires_at: Any = None


FILE = json.Decoder(_SentFile)


class AnthropicFileApi:
    """POST {address}/files. `tokens` as for AnthropicMessages."""

    sample = "file_0"
    gone: tuple[int, ...] = (404, 410)

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def upload(self, content: FileContent, target: Target) -> Call:
        """Return the call that uploads a file."""
        call = self._call("POST", PATH, target)
        write_form(call, [("expires_in_seconds", str(lifetime_within(content, MAX_LIFETIME_S)))], content)
        return call

    def proceed(self, reply: UpstreamReply, content: FileContent, target: Target) -> None:
        """Return None: one call uploads a file."""
        return

    def read(self, reply: UpstreamReply) -> ProviderFile:
        """Read a file."""
        sent: _SentFile = read_struct(FILE, reply.read_all())
        return ProviderFile(sent.id, sent.id, expires_at=seconds_of(sent.expires_at) if sent.expires_at else 0)

    def show(self, ident: str, target: Target) -> Call:
        """Return the call that shows a file."""
        return self._call("GET", f"{PATH}/{quote(ident, safe='')}", target)

    def delete(self, ident: str, target: Target) -> Call:
        """Return the call that deletes a file."""
        return self._call("DELETE", f"{PATH}/{quote(ident, safe='')}", target)

    def _call(self, method: str, path: str, target: Target) -> Call:
        url, headers = address_of(target, path, self._tokens)
        headers["accept"] = "application/json"
        headers["anthropic-beta"] = FILES_BETA
        return Call(method, url, headers)
