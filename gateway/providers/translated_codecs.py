"""Base classes of codecs that never relay a caller's body, which are most codecs besides chat."""

from typing import NoReturn

from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.request import Native, Request
from gateway.providers.answer_checks import UNKNOWN_SHAPE
from gateway.providers.protocol import Call, Target, UpstreamReply


class WrittenCodec:
    """A Codec that never relays a caller's body: its `dialect` differs from the dialect of every request."""

    dialect = ""
    waits = False

    def relay(self, native: Native, request: Request, target: Target) -> Call:
        """Raise NotSupported, because every call is rebuilt."""
        raise NotSupported("A request of this kind is not relayed.")


class PiecesReader:
    """A StreamReader for answers that are only streamed."""

    def read(self, reply: UpstreamReply, relayed: bool) -> NoReturn:
        """Raise UpstreamFailed, because there is no non-streamed answer."""
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200)


class PiecesCodec(WrittenCodec, PiecesReader):
    """A StreamCodec for answers that are only streamed."""
