"""The interface of a provider's files API, and what its implementations share.

A codec writes the calls that upload a file, show it and delete it. Like all codecs it is stateless. Its methods return
calls, which `file_calls` sends; they raise UpstreamFailed for an unexpected shape.
"""

from collections.abc import Callable, Iterator
from typing import Protocol as Interface

from msgspec import Struct

from gateway.providers.protocol import Call, Target, UpstreamReply

READY = "ready"
WORKING = "working"  # the provider still reads the file
REFUSED = "refused"  # the provider cannot read the file
DAY_S = 86_400
MIN_LIFETIME_S = 3600


class ProviderFile(Struct, frozen=True):
    """A file at its provider. Requests name its `reference`, all other calls its `ident`. `expires_at` is in seconds, 0
    if it does not expire there."""

    ident: str
    reference: str
    state: str = READY
    expires_at: int = 0


class FileContent(Struct, frozen=True, eq=False):
    """A file to upload. `open` returns its bytes from the start in pieces, and may be called again. `lifetime_s` is how
    long it is needed, 0 if that is unknown."""

    name: str
    media_type: str
    size: int
    open: Callable[[], Iterator[bytes]]
    lifetime_s: int = 0


class FileCodec(Interface):
    """A provider's files API. `sample` is a reference in the form of those that requests name. An answer with a status
    in `gone` says that a file does not exist (any more)."""

    sample: str
    gone: tuple[int, ...]

    def upload(self, content: FileContent, target: Target) -> Call:
        """Return the first call of an upload."""
        ...

    def proceed(self, reply: UpstreamReply, content: FileContent, target: Target) -> Call | None:
        """Return the call that follows the answer to the first one; None where that was the upload."""
        ...

    def read(self, reply: UpstreamReply) -> ProviderFile:
        """Read the answer to the last call of an upload, or to `show`."""
        ...

    def show(self, ident: str, target: Target) -> Call: ...

    def delete(self, ident: str, target: Target) -> Call: ...


class WrappedContent:
    """A file as a message body, with bytes around it. It is sent in pieces and can be sent again."""

    def __init__(self, before: bytes, content: FileContent, after: bytes = b"") -> None:
        self._before = before
        self._content = content
        self._after = after

    def __len__(self) -> int:
        return len(self._before) + self._content.size + len(self._after)

    def pieces(self) -> Iterator[bytes]:
        if self._before:
            yield self._before
        pieces = self._content.open()
        try:
            yield from pieces
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()
        if self._after:
            yield self._after


def lifetime_within(content: FileContent, most_s: int) -> int:
    """Return how many seconds a provider is to keep a file: as long as it is needed, at most `most_s`."""
    return max(MIN_LIFETIME_S, min(content.lifetime_s or most_s, most_s))
