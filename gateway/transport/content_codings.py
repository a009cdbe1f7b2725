"""Content codings that an upstream uses although it was asked for none."""

import zlib

from gateway.errors import StreamTruncated, UpstreamFailed

CODINGS = frozenset({"gzip", "x-gzip", "deflate"})  # RFC 9110, section 8.4.1
ANY_ZLIB = zlib.MAX_WBITS | 32  # gzip or zlib, told by the first bytes
ITEM_LIMIT = 4 * 1024 * 1024  # what the bytes of one receive may unpack to: some 10 ms of work


class Unpacker:
    """Unpacks a body piece by piece. `ended`: its own end was read; what follows is no part of it."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._inflater = zlib.decompressobj(ANY_ZLIB)
        self._begun = False
        self.ended = False

    def unpack(self, data: bytes, last: bool) -> bytes:
        """The plain bytes of `data`. UpstreamFailed when damaged or too large, StreamTruncated when cut short."""
        self._begun = self._begun or bool(data)
        try:
            plain = self._inflater.decompress(data, ITEM_LIMIT)
        except zlib.error:
            raise UpstreamFailed(f"{self._host} answered with a damaged compressed body.") from None
        if self._inflater.unconsumed_tail:
            raise UpstreamFailed(
                f"{self._host} answered with a body that unpacks too large.", code="response_too_large"
            )
        self.ended = self._inflater.eof
        if last and self._begun and not self.ended:
            raise StreamTruncated(f"{self._host} sent an incomplete compressed body.")
        return plain


def find_unpacker(headers: dict[str, str], host: str) -> Unpacker | None:
    """What unpacks a body with these headers, None when it is plain; then they describe the plain body.

    UpstreamFailed for a coding that was never asked for and is not known.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in CODINGS:
        raise UpstreamFailed(f"{host} answered in the content coding {coding[:40]!r}, which was not asked for.")
    del headers["content-encoding"]
    headers.pop("content-length", None)
    return Unpacker(host)
