"""The interface of a provider's batch API, and what its implementations share.

A codec writes the call of a request as a line of the provider's batch, creates the batch, reads its state and its
results, cancels it and deletes what was uploaded. Like all codecs it is stateless. Its methods return calls, which
`batch_calls` sends; they raise UpstreamFailed for an unexpected shape.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from typing import Protocol as Interface

from msgspec import DecodeError, Raw, Struct, ValidationError, json

from gateway.errors import UpstreamFailed
from gateway.providers.answer_checks import UNKNOWN_SHAPE
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.runtime.large_files import MessageBody, StoredFile

WORKING = "working"
ENDED = "ended"
REFUSED = "refused"  # no line ran
NAME_KEY = "llmgateway"  # of a batch's metadata at the provider: the name that the gateway gave it
NOT_RUN = 0  # the status of a line that the provider did not run
UNREADABLE = -1  # the status of a line whose result has no known form
UNAVAILABLE = 503
MAX_DIGITS = 15


class ProviderBatch(Struct, frozen=True):
    """A batch at its provider. `state` is WORKING, ENDED or REFUSED, `word` the provider's own name of it. The counts
    are of lines. `files` name its results, `reason` says why it was refused. `created_at` is in seconds, 0 if unknown;
    `named`: whether the provider certainly says that the batch is the one that was looked for."""

    ident: str
    state: str
    word: str
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    files: tuple[str, ...] = ()
    reason: str = ""
    created_at: int = 0
    named: bool = True


class ResultLine(Struct, frozen=True):
    """The result of a line: the status and the body that the same request would have had as a call. NOT_RUN: the
    provider did not run it, because the batch expired or was cancelled. UNREADABLE: `body` is what the provider sent,
    and `custom_id` is unknown."""

    custom_id: str
    status: int
    body: bytes = b""


class BatchLot(Struct, frozen=True):
    """The lines of one batch for a provider, joined. `name` is unique; `place` is what they share (`place_of`)."""

    name: str
    place: str
    count: int
    lines: StoredFile
    upload: str = ""


class SoughtBatch(Struct, frozen=True):
    """A batch that is looked for: its name, its number of lines, and a time in seconds since which it was created."""

    name: str
    count: int
    since: int


class FoundBatches(Struct, frozen=True):
    """A page of a provider's list of batches: those that may be the one that was looked for, and where to read on (""
    at the end)."""

    batches: tuple[ProviderBatch, ...]
    following: str = ""


class BatchCodec(Interface):
    """A provider's batch API.

    `operations` may be lines. A batch has at most `max_lines` lines of `max_bytes` together, joined by `joint`.
    """

    operations: frozenset[str]
    max_lines: int
    max_bytes: int
    joint: bytes

    def serves(self, target: Target) -> bool:
        """Return whether the target is set up for batches."""
        ...

    def place_of(self, call: Call, target: Target) -> str:
        """Return what all lines of one batch must share besides their model, such as the endpoint."""
        ...

    def write_line(self, custom_id: str, call: Call, target: Target) -> bytes:
        """Return the line of a call, without a line break."""
        ...

    def upload(self, lot: BatchLot, target: Target) -> Call | None:
        """Return the call that uploads the lines; None where `create` sends them."""
        ...

    def read_upload(self, reply: UpstreamReply) -> str:
        """Return the name of the uploaded file."""
        ...

    def create(self, lot: BatchLot, target: Target) -> Call: ...

    def read(self, reply: UpstreamReply) -> ProviderBatch:
        """Read an answer to `create` or `status`."""
        ...

    def status(self, ident: str, target: Target) -> Call: ...

    def search(self, following: str, target: Target) -> Call:
        """Return the call for a page of the account's batches, newest first; `following` is where it begins."""
        ...

    def read_search(self, reply: UpstreamReply, sought: SoughtBatch, following: str) -> FoundBatches:
        """Return the batches of a page that may be the one that is sought; `following` is where the page began."""
        ...

    def results(self, batch: ProviderBatch, target: Target) -> list[Call]:
        """Return the calls that download the results of an ended batch."""
        ...

    def read_result(self, line: bytes) -> ResultLine: ...

    def cancel(self, ident: str, target: Target) -> Call: ...

    def leftovers(self, ident: str, upload: str, files: tuple[str, ...], target: Target) -> list[Call]:
        """Return the calls that delete what remains at the provider after the end of a batch."""
        ...


class WrappedLines:
    """Lines as a message body, with text around them. It is sent in pieces and can be sent again."""

    def __init__(self, before: bytes, lines: StoredFile, after: bytes) -> None:
        self._before = before
        self._lines = lines
        self._after = after

    def __len__(self) -> int:
        return len(self._before) + len(self._lines) + len(self._after)

    def pieces(self) -> Iterator[bytes]:
        yield self._before
        yield from self._lines.pieces()
        yield self._after


def body_of(call: Call) -> bytes:
    """Return the body of a line's call. UpstreamFailed for one that is sent in pieces, which is no JSON."""
    body: bytes | MessageBody = call.body
    if not isinstance(body, bytes):
        raise UpstreamFailed("This request cannot be the line of a batch.")
    return body


BODY = json.Decoder(dict[str, Raw])


def with_model(body: bytes, model: str) -> bytes:
    """Return a JSON body with another model, or without one ("")."""
    members: dict[str, Any] = BODY.decode(body)
    members.pop("model", None)
    if model:
        members = {"model": model, **members}
    return json.encode(members)


def read_struct(decoder: json.Decoder[Any], data: bytes) -> Any:
    """Decode an answer. UpstreamFailed."""
    try:
        return decoder.decode(data)
    except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError):
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None


def status_of(value: Any) -> int:
    """Return the HTTP status that a provider reports for a line; UNAVAILABLE for anything else."""
    status = count_of(value)
    return status if 100 <= status < 600 else UNAVAILABLE


def count_of(value: Any) -> int:
    """Return a count, or a time in seconds, that a provider reports as a number or as digits; 0 for anything else."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) < MAX_DIGITS else 0
    return value if type(value) is int and 0 < value < 10**MAX_DIGITS else 0


def seconds_of(text: Any) -> int:
    """Return an RFC 3339 time in seconds, 0 if it is none."""
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (TypeError, ValueError, OverflowError):
        return 0
