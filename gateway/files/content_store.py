"""The interface of stores of contents, and what their implementations share."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from gateway.errors import Unavailable

PIECE_BYTES = 1 << 18
# A token of Fernet: version, time and vector before the padded text, and the MAC after it (Fernet specification).
TOKEN_HEAD, BLOCK, TOKEN_END = 25, 16, 32
SEALED_PIECE = TOKEN_HEAD + (PIECE_BYTES // BLOCK + 1) * BLOCK + TOKEN_END

Cipher = Callable[[bytes], bytes]


class ContentLost(Unavailable):
    """The content of a file is not in its store, or damaged."""


class ContentStore(Protocol):
    """Contents by their ids. Each is a sequence of pieces that are encrypted separately: all but the last have
    PIECE_BYTES before, and SEALED_PIECE after."""

    def write(self, ident: str, pieces: Iterable[bytes], seal: Cipher) -> None:
        """Store pieces, encrypted with `seal`; nothing is stored if this raises. Unavailable."""

    def read(self, ident: str, first: int, end: int, unseal: Cipher) -> Iterator[bytes]:
        """Return the pieces from number `first` to before `end`, which exist, decrypted with `unseal`. The iterator
        must be closed. ContentLost for a missing content, at once; Unavailable."""

    def delete(self, idents: Iterable[str]) -> None:
        """Delete contents, if they exist. `older_than` finds those that remain."""

    def older_than(self, age_us: int, now_us: int) -> Iterator[str]:
        """Yield the ids of contents of at least this age, and delete incomplete ones of that age. Unavailable."""


def place_of(ident: str) -> str:
    """Return where a content is in every store. Ids begin with their time, so their ends distribute them."""
    return f"{ident[-2:]}/{ident}"
