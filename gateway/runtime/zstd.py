"""Zstandard (RFC 8878) of the standard library, which has it since Python 3.14; older versions have its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
