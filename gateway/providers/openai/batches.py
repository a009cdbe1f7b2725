"""OpenAI's batch API, and those of the same form: Azure's Global Batch, and the files and results of Mistral's.

Sources: OpenAI API reference, "Files" and "Batch", and its guide "Batch API" (limits, one model in each file);
Microsoft Learn, "Global Batch" (a separate deployment, POST /files and /batches).
"""

from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Raw, Struct, json

from gateway.providers.batches.batch_codec import (
    ENDED,
    NAME_KEY,
    NOT_RUN,
    REFUSED,
    UNAVAILABLE,
    WORKING,
    BatchLot,
    FoundBatches,
    ProviderBatch,
    ResultLine,
    SoughtBatch,
    body_of,
    count_of,
    read_struct,
    status_of,
    with_model,
)
from gateway.providers.media_codecs import FormBody, UploadPart
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.protocol import Call, Target, UpstreamReply

ENDPOINTS = ("/chat/completions", "/responses", "/embeddings", "/moderations")
JSONL = "application/jsonl"
PAGE = 100
WINDOW = "24h"
# Should the gateway never delete an input, the provider does: Azure's shortest time is 14 days.
LIFETIME_S = 14 * 24 * 3600
UNFINISHED_CODES = ("batch_expired", "batch_cancelled")
STATES = {"completed": ENDED, "expired": ENDED, "cancelled": ENDED, "failed": REFUSED}


class _SentFile(Struct):
    id: str


class _SentCounts(Struct):
    total: Any = 0
    completed: Any = 0
    failed: Any = 0


class _SentError(Struct):
    code: Any = None
    message: Any = None


class _SentErrors(Struct):
    data: list[_SentError] | None = None


class _SentBatch(Struct):
    """The fields of a batch that are read."""

    id: str
    status: str
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: _SentCounts | None = None
    errors: _SentErrors | None = None
    metadata: dict[str, Any] | None = None
    created_at: Any = 0


class _SentPage(Struct):
    data: list[_SentBatch]
    has_more: bool = False
    last_id: str | None = None


class _SentResponse(Struct):
    status_code: Any = 200
    body: Raw = Raw(b"null")


class _SentResult(Struct):
    custom_id: str
    response: _SentResponse | None = None
    error: _SentError | None = None


FILE = json.Decoder(_SentFile)
BATCH = json.Decoder(_SentBatch)
PAGES = json.Decoder(_SentPage)
RESULT = json.Decoder(_SentResult)


class OpenAIBatchApi:
    """POST {address}/files and {address}/batches. `tokens` as for OpenAIChat."""

    operations: frozenset[str] = frozenset(("chat", "embeddings", "moderations"))
    max_lines = 50_000
    max_bytes = 190 << 20  # of 200 MB
    joint = b"\n"

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def serves(self, target: Target) -> bool:
        """Return whether the target is set up for batches."""
        return True

    def place_of(self, call: Call, target: Target) -> str:
        """Return the endpoint of a call."""
        path = call.url.partition("?")[0]
        return next((f"/v1{endpoint}" for endpoint in ENDPOINTS if path.endswith(endpoint)), "")

    def write_line(self, custom_id: str, call: Call, target: Target) -> bytes:
        """Return the line of a call."""
        return write_line(custom_id, self.place_of(call, target), body_of(call))

    def upload(self, lot: BatchLot, target: Target) -> Call:
        """Return the call that uploads the lines."""
        fields = [
            ("purpose", "batch"),
            ("expires_after[anchor]", "created_at"),
            ("expires_after[seconds]", str(LIFETIME_S)),
        ]
        return self._form(lot, fields, target)

    def read_upload(self, reply: UpstreamReply) -> str:
        """Return the id of the uploaded file."""
        ident: str = read_struct(FILE, reply.read_all()).id
        return ident

    def create(self, lot: BatchLot, target: Target) -> Call:
        """Return the call that creates the batch of an uploaded file."""
        body = {
            "input_file_id": lot.upload,
            "endpoint": lot.place,
            "completion_window": WINDOW,
            "metadata": {NAME_KEY: lot.name},
        }
        return self._call("POST", "/batches", target, json.encode(body))

    def read(self, reply: UpstreamReply) -> ProviderBatch:
        """Read a batch."""
        return _batch_of(read_struct(BATCH, reply.read_all()))

    def status(self, ident: str, target: Target) -> Call:
        """Return the call that shows a batch."""
        return self._call("GET", f"/batches/{quote(ident, safe='')}", target)

    def search(self, following: str, target: Target) -> Call:
        """Return the call for a page of batches, newest first."""
        query = urlencode({"limit": PAGE, **({"after": following} if following else {})})
        call = self._call("GET", "/batches", target)
        call.url += ("&" if "?" in call.url else "?") + query
        return call

    def read_search(self, reply: UpstreamReply, sought: SoughtBatch, following: str) -> FoundBatches:
        """Return the batch with this name, if it is on this page."""
        page: _SentPage = read_struct(PAGES, reply.read_all())
        found = tuple(_batch_of(one) for one in page.data if (one.metadata or {}).get(NAME_KEY) == sought.name)
        older = any(0 < count_of(one.created_at) < sought.since for one in page.data)
        last = page.last_id or (page.data[-1].id if page.data else "")
        return FoundBatches(found, last if page.has_more and not older and not found else "")

    def results(self, batch: ProviderBatch, target: Target) -> list[Call]:
        """Return the downloads of the answers and of the errors."""
        return [self._call("GET", f"/files/{quote(file, safe='')}/content", target) for file in batch.files]

    def read_result(self, line: bytes) -> ResultLine:
        """Read a line of a file of results."""
        return read_result(line)

    def cancel(self, ident: str, target: Target) -> Call:
        """Return the call that cancels a batch."""
        return self._call("POST", f"/batches/{quote(ident, safe='')}/cancel", target, b"{}")

    def leftovers(self, ident: str, upload: str, files: tuple[str, ...], target: Target) -> list[Call]:
        """Return the calls that delete the files of a batch."""
        names = [name for name in (upload, *files) if name]
        return [self._call("DELETE", f"/files/{quote(name, safe='')}", target) for name in names]

    def _form(self, lot: BatchLot, fields: list[tuple[str, str]], target: Target) -> Call:
        form = FormBody(fields, [UploadPart("file", f"{lot.name}.jsonl", JSONL, lot.lines)])
        call = self._call("POST", "/files", target)
        call.headers["content-type"] = form.content_type
        call.body = form
        return call

    def _call(self, method: str, path: str, target: Target, body: bytes = b"") -> Call:
        url, headers = address_of(target, path, self._tokens)
        headers["accept"] = "*/*" if path.endswith("/content") else "application/json"
        if body:
            headers["content-type"] = "application/json"
        return Call(method, url, headers, body)


class AzureBatchApi(OpenAIBatchApi):
    """Azure's Global Batch. Its deployments serve batches alone: the provider's setting `batch_deployment` names
    them, with `{model}` for the name of the ordinary deployment."""

    operations: frozenset[str] = frozenset(("chat", "embeddings"))
    max_lines = 100_000

    def serves(self, target: Target) -> bool:
        """Return whether the operator named a deployment for batches."""
        return bool(target.settings.get("batch_deployment")) and target.trusted

    def write_line(self, custom_id: str, call: Call, target: Target) -> bytes:
        """Return the line of a call, for the deployment that serves batches."""
        deployment = target.settings["batch_deployment"].replace("{model}", target.mapping.external_id)
        return write_line(custom_id, self.place_of(call, target), with_model(body_of(call), deployment))


def write_line(custom_id: str, endpoint: str, body: bytes) -> bytes:
    """Return a line of an input file."""
    return json.encode({"custom_id": custom_id, "method": "POST", "url": endpoint, "body": Raw(body)})


def read_result(line: bytes) -> ResultLine:
    """Read a line of a file of results, in which an error has no response. UpstreamFailed."""
    sent: _SentResult = read_struct(RESULT, line)
    if sent.response is not None and sent.response.status_code:
        return ResultLine(sent.custom_id, status_of(sent.response.status_code), bytes(sent.response.body))
    error = sent.error or _SentError()
    if error.code in UNFINISHED_CODES:
        return ResultLine(sent.custom_id, NOT_RUN)
    body = {"error": {"message": str(error.message or error.code or ""), "type": "server_error", "code": error.code}}
    return ResultLine(sent.custom_id, UNAVAILABLE, json.encode(body))


def _batch_of(sent: _SentBatch) -> ProviderBatch:
    counts = sent.request_counts or _SentCounts()
    errors = (sent.errors.data if sent.errors else None) or []
    return ProviderBatch(
        ident=sent.id,
        state=STATES.get(sent.status, WORKING),
        word=sent.status,
        total=count_of(counts.total),
        succeeded=count_of(counts.completed),
        failed=count_of(counts.failed),
        files=tuple(file for file in (sent.output_file_id, sent.error_file_id) if file),
        reason=next((str(error.message or error.code) for error in errors), ""),
        created_at=count_of(sent.created_at),
    )
