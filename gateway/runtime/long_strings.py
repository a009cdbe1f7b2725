"""Strings of many megabytes that are put together piece by piece.

`str.join` holds the interpreter lock to its end: 25 to 160 ms for 62 MB, most of which are page faults. Each copy of a
piece takes microseconds, and other threads run in between.
"""

import ctypes
from collections.abc import Sequence

JOINED = 1 << 20  # a shorter string is joined in one call
# The highest character of the four kinds of strings that the interpreter has (PEP 393).
ASCII, LATIN, TWO_BYTES, FOUR_BYTES = 0x7F, 0xFF, 0xFFFF, 0x10FFFF

_new = ctypes.pythonapi.PyUnicode_New
_new.argtypes = (ctypes.c_ssize_t, ctypes.c_uint32)
_new.restype = ctypes.c_void_p
# The string is passed as an address: it may be changed only as long as there is one reference to it.
_copy = ctypes.pythonapi.PyUnicode_CopyCharacters
_copy.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.py_object, ctypes.c_ssize_t, ctypes.c_ssize_t)
_copy.restype = ctypes.c_ssize_t
_release = ctypes.pythonapi.Py_DecRef
_release.argtypes = (ctypes.c_void_p,)
_release.restype = None


def join_pieces(pieces: Sequence[str]) -> str:
    """Return the joined `pieces`, each of which is short."""
    length = sum(map(len, pieces))
    if length < JOINED:
        return "".join(pieces)
    address = _new(length, max(map(_highest, pieces)))
    try:
        at = 0
        for piece in pieces:
            at += _copy(address, at, piece, 0, len(piece))
        joined: str = ctypes.cast(address, ctypes.py_object).value
    finally:
        _release(address)
    return joined


def _highest(piece: str) -> int:
    """Return the highest character of the kind of string that the piece is."""
    if piece.isascii():
        return ASCII
    try:
        piece.encode("latin-1")
    except UnicodeEncodeError:
        wide = len(piece.encode("utf-16-le", "surrogatepass")) > 2 * len(piece)
        return FOUR_BYTES if wide else TWO_BYTES
    return LATIN
