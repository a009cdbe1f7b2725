"""The mark of a long context at the end of a model's name, such as "[1m]": agents write it for themselves, but some of
their requests carry it. It is no part of the name."""

import re

LONG_CONTEXT = re.compile(r"(?:\s*\[[12]m\])+\Z", re.IGNORECASE)
MARK_END = "]"


def unmarked(name: str) -> str:
    """Return a model's name without the mark."""
    if name.endswith(MARK_END):
        return LONG_CONTEXT.sub("", name)
    return name


def is_marked(name: str) -> bool:
    """Return whether a model's name has the mark."""
    return name.endswith(MARK_END) and LONG_CONTEXT.search(name) is not None
