"""Content codings of upstreams that compress although the request did not allow it."""

import zlib

from gateway.errors import StreamTruncated, UpstreamFailed

CODINGS = frozenset({"gzip", "x-gzip", "deflate"})  # RFC 9110, section 8.4.1
ANY_ZLIB = zlib.MAX_WBITS | 32  # gzip or zlib, detected by the first bytes
ITEM_LIMIT = 4 * 1024 * 1024  # limit for the unpacked bytes of one receive: some 10 ms of work


class Unpacker:
    """Unpacks a body piece by piece. `ended`: the end of the compressed data was read; further bytes are ignored."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._inflater = zlib.decompressobj(ANY_ZLIB)
        self._begun = False
        self.ended = False

    def unpack(self, data: bytes, last: bool) -> bytes:
        """Return the plain bytes of `data`. UpstreamFailed when damaged or too large, StreamTruncated if cut short."""
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
    """Return an unpacker for a body with these headers, None for a plain body; the headers then describe the plain
    body.

    UpstreamFailed for an unknown coding.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in CODINGS:
        raise UpstreamFailed(f"{host} answered in the content coding {coding[:40]!r}, which was not requested.")
    del headers["content-encoding"]
    headers.pop("content-length", None)
    return Unpacker(host)
