"""The calls about a provider's batches: created, found again, polled, read, cancelled and deleted."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from gateway.clock import Clock
from gateway.errors import GatewayError, NotSupported, UpstreamFailed
from gateway.providers.batches.batch_codec import (
    UNREADABLE,
    BatchCodec,
    BatchLot,
    ProviderBatch,
    ResultLine,
    SoughtBatch,
)
from gateway.providers.protocol import Call, Target, UpstreamReply, WireFormat
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Opener, signed_in, succeeded
from gateway.runtime.line_splitting import split_lines
from gateway.runtime.loop_turns import low_priority_turn
from gateway.runtime.threads import compute_if

CALL_TIMEOUT_S = 60.0
TRANSFER_TIMEOUT_S = 3600.0  # of an upload, and of a download
MAX_PAGES = 50  # of an account's batches that are searched
MAX_RESULT_BYTES = 64 << 20  # of one line
LARGE = 1 << 16

T = TypeVar("T")


class Carrier(NamedTuple):
    """How the calls of a target are made, and the target with its current credential."""

    codec: BatchCodec
    wire: WireFormat
    opener: Opener
    target: Target


class BatchCalls:
    """Calls about batches. All raise the errors of the transport and of the protocol's `failure`, and NotSupported
    where the provider has no batch API."""

    def __init__(self, upstreams: Upstreams, codecs: dict[str, BatchCodec]) -> None:
        self._upstreams = upstreams
        self._codecs = codecs

    def codec_of(self, target: Target) -> BatchCodec | None:
        """Return the codec of the target's batch API; None where it has none, or is not set up for it."""
        codec = self._codecs.get(target.provider.batch_api)
        if codec is None or not target.mapping.batch_multiplier or not codec.serves(target):
            return None
        return codec

    def upload(self, lot: BatchLot, target: Target) -> str:
        """Upload the lines; return the name of the file, "" where the creation sends them."""
        carrier = self._carry(target)
        call = carrier.codec.upload(lot, carrier.target)
        return "" if call is None else self._send(carrier, call, carrier.codec.read_upload, TRANSFER_TIMEOUT_S)

    def create(self, lot: BatchLot, target: Target) -> ProviderBatch:
        """Create the batch."""
        carrier = self._carry(target)
        call = carrier.codec.create(lot, carrier.target)
        return self._send(carrier, call, carrier.codec.read, TRANSFER_TIMEOUT_S)

    def find(self, name: str, count: int, since: int, target: Target) -> list[ProviderBatch]:
        """Return the batches that may be the one with this name and number of lines, created after `since` (seconds),
        the oldest first."""
        carrier = self._carry(target)
        sought = SoughtBatch(name, count, since)
        found: list[ProviderBatch] = []
        following = ""
        for _ in range(MAX_PAGES):
            call = carrier.codec.search(following, carrier.target)

            read = partial(carrier.codec.read_search, sought=sought, following=following)
            page = self._send(carrier, call, read)
            found += page.batches
            following = page.following
            if not following:
                break
        return found[::-1]

    def status(self, ident: str, target: Target) -> ProviderBatch:
        """Return the state of a batch."""
        carrier = self._carry(target)
        return self._send(carrier, carrier.codec.status(ident, carrier.target), carrier.codec.read)

    def results(self, batch: ProviderBatch, target: Target) -> Iterator[ResultLine]:
        """Yield the results of an ended batch as they arrive, in any order; UNREADABLE ones with at most the first
        MAX_RESULT_BYTES of what the provider sent. The iterator must be closed."""
        carrier = self._carry(target)
        for call in carrier.codec.results(batch, carrier.target):
            call.stream = True
            reply = self._open(carrier, call, TRANSFER_TIMEOUT_S)
            try:
                for line in split_lines(reply.chunks(), MAX_RESULT_BYTES, goes_on=True):
                    low_priority_turn()
                    yield compute_if(len(line) > LARGE, _read_result, carrier.codec, line)
            finally:
                reply.close()

    def cancel(self, ident: str, target: Target) -> None:
        """Cancel a batch; providers refuse it (4xx) for one that has ended."""
        carrier = self._carry(target)
        self._open(carrier, carrier.codec.cancel(ident, carrier.target)).close()

    def delete(self, ident: str, upload: str, files: tuple[str, ...], target: Target) -> None:
        """Delete what remains of a batch at its provider. It is no error if that does not exist."""
        carrier = self._carry(target)
        for call in carrier.codec.leftovers(ident, upload, files, carrier.target):
            try:
                self._open(carrier, call).close()
            except GatewayError as error:
                if error.upstream_status != 404:
                    raise

    def _carry(self, target: Target) -> Carrier:
        codec = self._codecs.get(target.provider.batch_api)
        if codec is None:
            raise NotSupported(f"The provider {target.provider.id} has no batch API.")
        wire, opener = self._upstreams.carrier(target)
        return Carrier(codec, wire, opener, signed_in(target))

    def _send(
        self, carrier: Carrier, call: Call, read: Callable[[UpstreamReply], T], seconds: float = CALL_TIMEOUT_S
    ) -> T:
        reply = self._open(carrier, call, seconds)
        try:
            return read(reply)
        finally:
            reply.close()

    def _open(self, carrier: Carrier, call: Call, seconds: float = CALL_TIMEOUT_S) -> UpstreamReply:
        """Return the reply of a call that succeeded."""
        reply = carrier.opener.send(call, carrier.target, Clock.monotonic() + seconds).wait()
        return succeeded(reply, carrier.wire, carrier.target)


def _read_result(codec: BatchCodec, line: bytes) -> ResultLine:
    """Return a result, or one that is UNREADABLE: the results of other lines do not depend on it."""
    if len(line) > MAX_RESULT_BYTES:
        return ResultLine("", UNREADABLE, line[:MAX_RESULT_BYTES])
    try:
        return codec.read_result(line)
    except UpstreamFailed:
        return ResultLine("", UNREADABLE, line)
