"""What codecs share whose every call is written anew: most operations beside chat."""

from typing import NoReturn

from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.request import Native, Request
from gateway.providers.answers import ODD
from gateway.providers.protocol import Call, Target, UpstreamReply


class WrittenCodec:
    """A Codec whose calls are never a caller's own body; `dialect` is its own."""

    dialect = ""
    waits = False

    def relay(self, native: Native, request: Request, target: Target) -> Call:
        """Every call is written anew."""
        raise NotSupported("A request of this kind is not relayed.")


class PiecesReader:
    """A StreamReader of answers that come in pieces only."""

    def read(self, reply: UpstreamReply, relayed: bool) -> NoReturn:
        """There is none in one piece."""
        raise UpstreamFailed(ODD, upstream_status=200)


class PiecesCodec(WrittenCodec, PiecesReader):
    """A StreamCodec of such answers."""
