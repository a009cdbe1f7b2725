"""Makes Hypothesis generate the same examples in every run and in every process.

Hypothesis takes five percent of numbers and texts from the literals of imported modules. Every process of a fresh clone
then reads the whole product, which takes seconds, and the examples change with each commit. The profiles `explore` and
`fuzz`, which search new examples, still do so.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet


def make_steady() -> None:
    """Use the same examples in this process."""
    _leave_literals("_get_local_constants")
    _know_utf_8("intervals_from_codec")


def _leave_literals(name: str) -> None:
    search: Callable[[], Any] = getattr(providers, name)
    none = providers.Constants()

    def literals() -> Any:
        return none if settings.default.derandomize else search()

    setattr(providers, name, literals)


def _know_utf_8(name: str) -> None:
    """Return the characters of UTF-8, all except surrogates. Hypothesis finds them by encoding a million characters."""
    find: Callable[[str], Any] = getattr(charmap, name)
    known = IntervalSet(((0, 0xD7FF), (0xE000, 0x10FFFF))), IntervalSet(())
    setattr(charmap, name, lambda codec: known if codec == "utf-8" else find(codec))
