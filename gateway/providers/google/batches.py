"""Google's Batch API: the requests are a file of the Files API, and the answers are another one.

Sources: Gemini API reference, "Batch API" (models.batchGenerateContent, batches.get, list, cancel and delete; the
states and counts of a batch; lines with `key` and `request`, answers with `key` and `response` or `error`) and "Files"
(media uploads in one multipart call, downloads). Errors of lines have the codes of google.rpc.Code.
"""

import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Raw, Struct, json

from gateway.providers.batches.batch_codec import (
    ENDED,
    NOT_RUN,
    REFUSED,
    UNAVAILABLE,
    WORKING,
    BatchLot,
    FoundBatches,
    ProviderBatch,
    ResultLine,
    SoughtBatch,
    WrappedLines,
    body_of,
    count_of,
    read_struct,
    seconds_of,
    status_of,
)
from gateway.providers.google.generate import GENERATE_CONTENT, Authorize, address_of
from gateway.providers.protocol import Call, Target, UpstreamReply

BATCH_METHOD = "batchGenerateContent"
PAGE = 100
STATES = {"SUCCEEDED": ENDED, "CANCELLED": ENDED, "EXPIRED": ENDED, "FAILED": REFUSED}
# google.rpc.Code → the HTTP status of the same error (google/rpc/code.proto).
STATUS_OF = {1: NOT_RUN, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 13: 500, 14: 503, 16: 401}
FIRST_STATUS = 400


class _SentName(Struct):
    name: str


class _SentFile(Struct):
    file: _SentName


class _SentStats(Struct, rename="camel"):
    request_count: Any = 0
    successful_request_count: Any = 0
    failed_request_count: Any = 0


class _SentOutput(Struct, rename="camel"):
    responses_file: str = ""


class _SentMetadata(Struct, rename="camel"):
    state: str = ""
    display_name: str = ""
    create_time: Any = ""
    batch_stats: _SentStats | None = None
    output: _SentOutput | None = None


class _SentError(Struct):
    code: Any = 0
    message: Any = ""


class _SentOperation(Struct):
    """The fields of a batch, as a long-running operation, that are read."""

    name: str
    metadata: _SentMetadata
    response: _SentOutput | None = None
    error: _SentError | None = None


class _SentOperations(Struct, rename="camel"):
    operations: list[_SentOperation] = []
    next_page_token: str = ""


class _SentResult(Struct):
    key: str
    response: Raw = Raw(b"")
    error: _SentError | None = None


FILE = json.Decoder(_SentFile)
OPERATION = json.Decoder(_SentOperation)
PAGES = json.Decoder(_SentOperations)
RESULT = json.Decoder(_SentResult)


class GoogleBatchApi:
    """POST {address}/models/{model}:batchGenerateContent for a file of requests. `authorize` adds the credential."""

    operations: frozenset[str] = frozenset(("chat",))
    max_lines = 200_000
    max_bytes = 1900 << 20  # of 2 GB
    joint = b"\n"

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def serves(self, target: Target) -> bool:
        """Return whether the target is set up for batches."""
        return True

    def place_of(self, call: Call, target: Target) -> str:
        """Return the method of a call; others than generateContent have another batch method."""
        return GENERATE_CONTENT if call.url.partition("?")[0].endswith(f":{GENERATE_CONTENT}") else ""

    def write_line(self, custom_id: str, call: Call, target: Target) -> bytes:
        """Return the line of a call."""
        return json.encode({"key": custom_id, "request": Raw(body_of(call))})

    def upload(self, lot: BatchLot, target: Target) -> Call:
        """Return the call that uploads the lines."""
        boundary = f"llmgateway-{secrets.token_hex(16)}"
        described = json.encode({"file": {"displayName": lot.name, "mimeType": "application/jsonl"}})
        before = (
            b"--%b\r\nContent-Type: application/json; charset=utf-8\r\n\r\n%b\r\n"
            b"--%b\r\nContent-Type: application/jsonl\r\n\r\n" % (boundary.encode(), described, boundary.encode())
        )
        call = self._call("POST", _beside(target, "upload", "/files"), target)
        call.headers["x-goog-upload-protocol"] = "multipart"
        call.headers["content-type"] = f"multipart/related; boundary={boundary}"
        call.body = WrappedLines(before, lot.lines, f"\r\n--{boundary}--\r\n".encode())
        return call

    def read_upload(self, reply: UpstreamReply) -> str:
        """Return the name of the uploaded file."""
        name: str = read_struct(FILE, reply.read_all()).file.name
        return name

    def create(self, lot: BatchLot, target: Target) -> Call:
        """Return the call that creates the batch of an uploaded file."""
        body = {"batch": {"displayName": lot.name, "inputConfig": {"fileName": lot.upload}}}
        call = self._call("POST", address_of(target, BATCH_METHOD), target)
        call.headers["content-type"] = "application/json"
        call.body = json.encode(body)
        return call

    def read(self, reply: UpstreamReply) -> ProviderBatch:
        """Read a batch."""
        return _batch_of(read_struct(OPERATION, reply.read_all()))

    def status(self, ident: str, target: Target) -> Call:
        """Return the call that shows a batch."""
        return self._call("GET", _place(target, f"/{_path(ident)}"), target)

    def search(self, following: str, target: Target) -> Call:
        """Return the call for a page of batches, newest first."""
        query = urlencode({"pageSize": PAGE, **({"pageToken": following} if following else {})})
        return self._call("GET", f"{_place(target, '/batches')}?{query}", target)

    def read_search(self, reply: UpstreamReply, sought: SoughtBatch, following: str) -> FoundBatches:
        """Return the batch with this name, if it is on this page."""
        page: _SentOperations = read_struct(PAGES, reply.read_all())
        batches = [(one.metadata.display_name, _batch_of(one)) for one in page.operations]
        found = tuple(batch for title, batch in batches if title == sought.name)
        older = any(0 < batch.created_at < sought.since for _, batch in batches)
        return FoundBatches(found, "" if found or older else page.next_page_token)

    def results(self, batch: ProviderBatch, target: Target) -> list[Call]:
        """Return the downloads of the answers."""
        return [
            self._call("GET", f"{_beside(target, 'download', f'/{_path(file)}:download')}?alt=media", target)
            for file in batch.files
        ]

    def read_result(self, line: bytes) -> ResultLine:
        """Read a line of the answers."""
        sent: _SentResult = read_struct(RESULT, line)
        if sent.error is None:
            return ResultLine(sent.key, 200, bytes(sent.response))
        code = count_of(sent.error.code)
        status = status_of(code) if code >= FIRST_STATUS else STATUS_OF.get(code, UNAVAILABLE)
        body = {"error": {"code": status, "message": str(sent.error.message), "status": "FAILED"}}
        return ResultLine(sent.key, status, json.encode(body))

    def cancel(self, ident: str, target: Target) -> Call:
        """Return the call that cancels a batch."""
        return self._call("POST", _place(target, f"/{_path(ident)}:cancel"), target)

    def leftovers(self, ident: str, upload: str, files: tuple[str, ...], target: Target) -> list[Call]:
        """Return the calls that delete a batch and its files. The file of the answers ends with the batch."""
        names: Iterator[str] = (name for name in (ident, upload) if name)
        return [self._call("DELETE", _place(target, f"/{_path(name)}"), target) for name in names]

    def _call(self, method: str, url: str, target: Target) -> Call:
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["accept"] = "application/json"
        self._authorize(headers, target)
        return Call(method, url, headers)


def _batch_of(sent: _SentOperation) -> ProviderBatch:
    metadata = sent.metadata
    stats = metadata.batch_stats or _SentStats()
    word = metadata.state.rpartition("STATE_")[2]
    output = sent.response or metadata.output or _SentOutput()
    return ProviderBatch(
        ident=sent.name,
        state=STATES.get(word, WORKING),
        word=word.lower(),
        total=count_of(stats.request_count),
        succeeded=count_of(stats.successful_request_count),
        failed=count_of(stats.failed_request_count),
        files=(output.responses_file,) if output.responses_file else (),
        reason=str(sent.error.message) if sent.error else "",
        created_at=seconds_of(metadata.create_time),
    )


def _place(target: Target, path: str) -> str:
    return target.address.partition("?")[0].rstrip("/") + path


def _beside(target: Target, service: str, path: str) -> str:
    """Return the URL of a path of the service for uploads or downloads, which is before the version of the address."""
    place = urlsplit(target.address.partition("?")[0].rstrip("/"))
    version = place.path.rpartition("/")[2]
    before = place.path.removesuffix(f"/{version}")
    return f"{place.scheme}://{place.netloc}{before}/{service}/{version}{path}"


def _path(name: str) -> str:
    """Return the name of a resource, such as batches/x, as part of a path."""
    return quote(name, safe="/")
