"""Examples of Hypothesis that are the same in every run and in every process.

It takes one number or text in twenty from the literals of whatever modules of the product happen to be imported, for
which every process of a fresh clone reads the whole product: seconds each, and other examples with each change. Where
new examples are searched (the profiles `explore` and `fuzz`) it does so still.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet


def make_steady() -> None:
    """From now on in this process."""
    _leave_literals("_get_local_constants")
    _know_utf_8("intervals_from_codec")


def _leave_literals(name: str) -> None:
    search: Callable[[], Any] = getattr(providers, name)
    none = providers.Constants()

    def literals() -> Any:
        return none if settings.default.derandomize else search()

    setattr(providers, name, literals)


def _know_utf_8(name: str) -> None:
    """What it finds by writing a million characters: UTF-8 has all but the surrogates, and each comes back."""
    find: Callable[[str], Any] = getattr(charmap, name)
    known = IntervalSet(((0, 0xD7FF), (0xE000, 0x10FFFF))), IntervalSet(())
    setattr(charmap, name, lambda codec: known if codec == "utf-8" else find(codec))
