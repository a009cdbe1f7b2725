"""Answers that begin before they are known: blanks before a JSON text, for proxies that close a silent connection.

The server leaves the beginning of the current answer at its greenlet; a handler that answers with one JSON text starts
it. The status is 200 from then on, whatever the answer becomes.
"""

from typing import Protocol

import gevent

ATTRIBUTE = "early_answer"
Headers = list[tuple[str, str]]


class EarlyAnswer(Protocol):
    """The beginning of the answer to the current request."""

    def begin(self, headers: Headers) -> None: ...


def offer(answer: EarlyAnswer | None) -> None:
    """Let handlers in this greenlet begin their answer early; None: no longer."""
    gevent.getcurrent().early_answer = answer


def begin(headers: Headers) -> None:
    """Send blanks from now on until the answer is complete, after the configured time without one."""
    answer: EarlyAnswer | None = getattr(gevent.getcurrent(), ATTRIBUTE, None)
    if answer is not None:
        answer.begin(headers)
