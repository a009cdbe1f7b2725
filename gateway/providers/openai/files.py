"""OpenAI's files API, and those of the same form: Azure's and Mistral's.

Sources: OpenAI API reference, "Files" (purposes; `expires_after` between an hour and 30 days), and its guide "File
inputs"; Microsoft Learn, "Responses API" (the purpose of input files is `assistants`); Mistral API reference, "Files"
(`expiry` in hours).
"""

import secrets
from typing import Any
from urllib.parse import quote

from msgspec import Struct, json

from gateway.providers.batches.batch_codec import count_of, read_struct
from gateway.providers.files.file_codec import DAY_S, FileContent, ProviderFile, WrappedContent, lifetime_within
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.protocol import Call, Target, UpstreamReply

PATH = "/files"
MAX_LIFETIME_S = 30 * DAY_S
AZURE_LIFETIME_S = 14 * DAY_S  # the shortest that every kind of its files accepts
HOUR_S = 3600
QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})  # WHATWG HTML, multipart/form-data


class _SentFile(Struct):
    id: str
    expires_at: Any = 0


FILE = json.Decoder(_SentFile)


class OpenAIFileApi:
    """POST {address}/files. `tokens` as for OpenAIChat."""

    sample = "file-0"
    gone: tuple[int, ...] = (404, 410)

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def fields(self, content: FileContent) -> list[tuple[str, str]]:
        """Return the fields of the form beside the file."""
        lifetime_s = lifetime_within(content, MAX_LIFETIME_S)
        return expiring("user_data", lifetime_s)

    def upload(self, content: FileContent, target: Target) -> Call:
        """Return the call that uploads a file."""
        call = self._call("POST", PATH, target)
        write_form(call, self.fields(content), content)
        return call

    def proceed(self, reply: UpstreamReply, content: FileContent, target: Target) -> None:
        """Return None: one call uploads a file."""
        return

    def read(self, reply: UpstreamReply) -> ProviderFile:
        """Read a file."""
        sent: _SentFile = read_struct(FILE, reply.read_all())
        return ProviderFile(sent.id, sent.id, expires_at=count_of(sent.expires_at))

    def show(self, ident: str, target: Target) -> Call:
        """Return the call that shows a file."""
        return self._call("GET", f"{PATH}/{quote(ident, safe='')}", target)

    def delete(self, ident: str, target: Target) -> Call:
        """Return the call that deletes a file."""
        return self._call("DELETE", f"{PATH}/{quote(ident, safe='')}", target)

    def _call(self, method: str, path: str, target: Target) -> Call:
        url, headers = address_of(target, path, self._tokens)
        headers["accept"] = "application/json"
        return Call(method, url, headers)


class AzureFileApi(OpenAIFileApi):
    """Azure's files API, which has no purpose `user_data`."""

    def fields(self, content: FileContent) -> list[tuple[str, str]]:
        """Return the fields of the form beside the file."""
        return expiring("assistants", AZURE_LIFETIME_S)


class MistralFileApi(OpenAIFileApi):
    """Mistral's files API, which takes lifetimes in hours."""

    sample = "00000000-0000-0000-0000-000000000000"

    def fields(self, content: FileContent) -> list[tuple[str, str]]:
        """Return the fields of the form beside the file."""
        hours = -(-lifetime_within(content, MAX_LIFETIME_S) // HOUR_S)
        return [("purpose", "ocr"), ("expiry", str(hours))]


def expiring(purpose: str, lifetime_s: int) -> list[tuple[str, str]]:
    """Return the fields of a form with a purpose and a lifetime."""
    return [
        ("purpose", purpose),
        ("expires_after[anchor]", "created_at"),
        ("expires_after[seconds]", str(lifetime_s)),
    ]


def write_form(call: Call, fields: list[tuple[str, str]], content: FileContent) -> None:
    """Let a call send a form with these fields and a file."""
    boundary = f"llmgateway-{secrets.token_hex(16)}"
    before = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields
    )
    before += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
        f'filename="{content.name.translate(QUOTED)}"\r\nContent-Type: {content.media_type}\r\n\r\n'
    )
    call.headers["content-type"] = f"multipart/form-data; boundary={boundary}"
    call.body = WrappedContent(before.encode(), content, f"\r\n--{boundary}--\r\n".encode())
