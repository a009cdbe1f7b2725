"""Anthropic's Message Batches: the requests are sent with the creation, and the results are one stream.

Sources: Anthropic API reference, "Message Batches" (100,000 requests or 256 MB in each; ids of up to 64 letters,
digits, _ and -; no metadata, so a lost batch is found by its time and size). Its errors have the types of others.
"""

from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Raw, Struct, json

from gateway.providers.anthropic import host_rules
from gateway.providers.batches.batch_codec import (
    ENDED,
    NOT_RUN,
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
)
from gateway.providers.openai.address import address_of
from gateway.providers.protocol import Call, Target, UpstreamReply

PATH = "/messages/batches"
BETA = "anthropic-beta"
PAGE = 100
# Anthropic API reference, "Errors".
STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class _SentCounts(Struct):
    processing: Any = 0
    succeeded: Any = 0
    errored: Any = 0
    canceled: Any = 0
    expired: Any = 0


class _SentBatch(Struct):
    """The fields of a batch that are read."""

    id: str
    processing_status: str
    request_counts: _SentCounts
    created_at: Any = ""


class _SentPage(Struct):
    data: list[_SentBatch]
    has_more: bool = False
    last_id: str | None = None


class _SentOutcome(Struct):
    type: str
    message: Raw = Raw(b"")
    error: Raw = Raw(b"")


class _SentResult(Struct):
    custom_id: str
    result: _SentOutcome


class _SentErrorType(Struct):
    type: str = ""


class _SentError(Struct):
    error: _SentErrorType | None = None


BATCH = json.Decoder(_SentBatch)
PAGES = json.Decoder(_SentPage)
RESULT = json.Decoder(_SentResult)
ERROR = json.Decoder(_SentError)


class AnthropicBatchApi:
    """POST {address}/messages/batches. `tokens` as for AnthropicMessages."""

    operations: frozenset[str] = frozenset(("chat",))
    max_lines = 100_000
    max_bytes = 240 << 20  # of 256 MB
    joint = b","

    def __init__(self, tokens: host_rules.Tokens | None = None) -> None:
        self._tokens = tokens

    def serves(self, target: Target) -> bool:
        """Return whether the target is set up for batches."""
        return True

    def place_of(self, call: Call, target: Target) -> str:
        """Return the beta features of a call, which the header of the creation enables for all lines."""
        return f"/v1/messages {call.headers.get(BETA, '')}".strip()

    def write_line(self, custom_id: str, call: Call, target: Target) -> bytes:
        """Return the request of a call."""
        return json.encode({"custom_id": custom_id, "params": Raw(body_of(call))})

    def upload(self, lot: BatchLot, target: Target) -> None:
        """Return None: the creation has the lines."""
        return

    def read_upload(self, reply: UpstreamReply) -> str:
        """Return "", because nothing is uploaded."""
        return ""

    def create(self, lot: BatchLot, target: Target) -> Call:
        """Return the call that creates the batch of all lines."""
        call = self._call("POST", PATH, target)
        call.headers["content-type"] = "application/json"
        if beta := lot.place.partition(" ")[2]:
            call.headers[BETA] = beta
        call.body = WrappedLines(b'{"requests":[', lot.lines, b"]}")
        return call

    def read(self, reply: UpstreamReply) -> ProviderBatch:
        """Read a batch."""
        return _batch_of(read_struct(BATCH, reply.read_all()))

    def status(self, ident: str, target: Target) -> Call:
        """Return the call that shows a batch."""
        return self._call("GET", f"{PATH}/{quote(ident, safe='')}", target)

    def search(self, following: str, target: Target) -> Call:
        """Return the call for a page of batches, newest first."""
        query = urlencode({"limit": PAGE, **({"after_id": following} if following else {})})
        call = self._call("GET", PATH, target)
        call.url += f"?{query}"
        return call

    def read_search(self, reply: UpstreamReply, sought: SoughtBatch, following: str) -> FoundBatches:
        """Return the batches of this size that were created since then. Their results show which one it is."""
        page: _SentPage = read_struct(PAGES, reply.read_all())
        batches = [_batch_of(one, named=False) for one in page.data]
        found = tuple(one for one in batches if one.total == sought.count and one.created_at >= sought.since)
        older = any(0 < one.created_at < sought.since for one in batches)
        last = page.last_id or (page.data[-1].id if page.data else "")
        return FoundBatches(found, last if page.has_more and not older else "")

    def results(self, batch: ProviderBatch, target: Target) -> list[Call]:
        """Return the download of the results. Its address in the batch is not used: it may be anywhere."""
        call = self._call("GET", f"{PATH}/{quote(batch.ident, safe='')}/results", target)
        call.headers["accept"] = "*/*"
        return [call]

    def read_result(self, line: bytes) -> ResultLine:
        """Read a result."""
        sent: _SentResult = read_struct(RESULT, line)
        outcome = sent.result
        if outcome.type == "succeeded":
            return ResultLine(sent.custom_id, 200, bytes(outcome.message))
        if outcome.type != "errored":
            return ResultLine(sent.custom_id, NOT_RUN)
        body = bytes(outcome.error)
        error: _SentError = read_struct(ERROR, body or b"{}")
        status = STATUS_OF.get(error.error.type, UNAVAILABLE) if error.error else UNAVAILABLE
        return ResultLine(sent.custom_id, status, body)

    def cancel(self, ident: str, target: Target) -> Call:
        """Return the call that cancels a batch."""
        return self._call("POST", f"{PATH}/{quote(ident, safe='')}/cancel", target)

    def leftovers(self, ident: str, upload: str, files: tuple[str, ...], target: Target) -> list[Call]:
        """Return the call that deletes a batch with its results."""
        return [self._call("DELETE", f"{PATH}/{quote(ident, safe='')}", target)]

    def _call(self, method: str, path: str, target: Target) -> Call:
        url, headers = address_of(target, path, self._tokens)
        headers["accept"] = "application/json"
        return Call(method, url, headers)


def _batch_of(sent: _SentBatch, *, named: bool = True) -> ProviderBatch:
    counts = sent.request_counts
    left_out = count_of(counts.canceled) + count_of(counts.expired)
    succeeded, failed = count_of(counts.succeeded), count_of(counts.errored)
    return ProviderBatch(
        ident=sent.id,
        state=ENDED if sent.processing_status == "ended" else WORKING,
        word=sent.processing_status,
        total=count_of(counts.processing) + succeeded + failed + left_out,
        succeeded=succeeded,
        failed=failed,
        created_at=seconds_of(sent.created_at),
        named=named,
    )
