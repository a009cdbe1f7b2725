"""Google's Files API. Files are deleted after 48 hours there.

Sources: Gemini API reference, "Files" (files.get, files.delete, states), and its guide "Files API" (resumable uploads:
the first call returns an address with an `upload_id`, the second one sends the bytes).
"""

from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct, json

from gateway.errors import UpstreamFailed
from gateway.providers.answer_checks import UNKNOWN_SHAPE
from gateway.providers.batches.batch_codec import read_struct, seconds_of
from gateway.providers.files.file_codec import READY, REFUSED, WORKING, FileContent, ProviderFile, WrappedContent
from gateway.providers.google.generate import Authorize
from gateway.providers.protocol import Call, Target, UpstreamReply

STATES = {"ACTIVE": READY, "FAILED": REFUSED}
UPLOAD_URL = "x-goog-upload-url"


class _SentFile(Struct, rename="camel"):
    """The members of a file that are read. The answer to an upload has the file as its only member."""

    name: str = ""
    uri: str = ""
    state: str = "ACTIVE"
    expiration_time: Any = ""
    file: "_SentFile | None" = None


FILE = json.Decoder(_SentFile)


class GoogleFileApi:
    """POST /upload/{version}/files at the host of the address. `authorize` adds the credential."""

    sample = "files/0"
    gone: tuple[int, ...] = (403, 404)  # the API does not say which files exist in other projects

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def upload(self, content: FileContent, target: Target) -> Call:
        """Return the call that begins an upload."""
        call = self._call("POST", upload_address(target), target)
        call.headers |= {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(content.size),
            "x-goog-upload-header-content-type": content.media_type,
            "content-type": "application/json",
        }
        call.body = json.encode({"file": {"displayName": content.name}})
        return call

    def proceed(self, reply: UpstreamReply, content: FileContent, target: Target) -> Call:
        """Return the call that sends the bytes. They are sent to no other host than the target's. UpstreamFailed."""
        query = urlsplit(reply.headers.get(UPLOAD_URL, "")).query
        if not query:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=reply.status)
        call = self._call("POST", f"{upload_address(target)}?{query}", target)
        call.headers |= {
            "x-goog-upload-offset": "0",
            "x-goog-upload-command": "upload, finalize",
            "content-type": content.media_type,
        }
        call.body = WrappedContent(b"", content)
        return call

    def read(self, reply: UpstreamReply) -> ProviderFile:
        """Read a file. UpstreamFailed."""
        sent: _SentFile = read_struct(FILE, reply.read_all())
        sent = sent.file or sent
        if not sent.name:
            raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=reply.status)
        return ProviderFile(
            sent.name,
            sent.uri if sent.uri.startswith("https://") else sent.name,
            STATES.get(sent.state, WORKING),
            seconds_of(sent.expiration_time),
        )

    def show(self, ident: str, target: Target) -> Call:
        """Return the call that shows a file."""
        return self._call("GET", _place(ident, target), target)

    def delete(self, ident: str, target: Target) -> Call:
        """Return the call that deletes a file."""
        return self._call("DELETE", _place(ident, target), target)

    def _call(self, method: str, url: str, target: Target) -> Call:
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["accept"] = "application/json"
        self._authorize(headers, target)
        return Call(method, url, headers)


def upload_address(target: Target) -> str:
    """Return the URL for uploads, which is before the version of the address."""
    place = urlsplit(target.address.partition("?")[0].rstrip("/"))
    version = place.path.rpartition("/")[2]
    before = place.path.removesuffix(f"/{version}")
    return f"{place.scheme}://{place.netloc}{before}/upload/{version}/files"


def _place(ident: str, target: Target) -> str:
    return f"{target.address.partition('?')[0].rstrip('/')}/{quote(ident, safe='/')}"
