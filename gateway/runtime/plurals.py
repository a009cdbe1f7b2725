"""Counts in sentences: a noun in the number that its count asks for."""


def plural(count: int, noun: str, several: str = "") -> str:
    """Return the noun for a count: "request" for 1, otherwise "requests", or `several`."""
    return noun if count == 1 else several or f"{noun}s"


def many(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun: "1 request", "2,000 requests"."""
    return f"{count:,} {plural(count, noun, several)}"
