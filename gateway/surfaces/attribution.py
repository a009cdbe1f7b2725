"""Attribution of requests: metadata by which the log is searched, from headers and from OpenAI's own fields."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from gateway.accounts.access import keeps_nothing
from gateway.billing.context import RequestContext

PREFIX = "x-llmgateway-"
USER = "user"
# Limits of what one request may store: the number of pairs, characters of a name and of a value, and of all together.
MOST_PAIRS = 16
LONGEST_NAME = 64
LONGEST_VALUE = 256
MOST_CHARACTERS = 2048
MOST_READ = 64  # members of an object that are read
Pairs = Iterable[tuple[str, str]]


def read_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata in headers: `X-LLMGateway-Team: search` is {"team": "search"}."""
    return _bounded({}, ((name[len(PREFIX) :], _as_text(text)) for name, text in headers.items() if _is_own(name)))


def add_body(context: RequestContext, user: str | None, metadata: Any = None) -> None:
    """Add the `metadata` and `user` of an OpenAI body, except for names that a header set. Under zero data retention
    nothing is added, since these fields are not addressed to the gateway."""
    if (user or metadata) and not keeps_nothing(context.caller.rules):
        context.metadata = _bounded(context.metadata, _pairs_of(user, metadata))


def _pairs_of(user: str | None, metadata: Any) -> Iterator[tuple[str, str]]:
    if isinstance(metadata, dict):
        for name, value in islice(metadata.items(), MOST_READ):
            if isinstance(value, str | int | float):
                yield name.lower(), str(value)
    if user:
        yield USER, user


def _bounded(given: Mapping[str, str], pairs: Pairs) -> dict[str, str]:
    """Return the pairs that fit beside those in `given`, which take precedence. Longer values are cut."""
    kept = dict(given)
    room = MOST_CHARACTERS - sum(len(name) + len(text) for name, text in kept.items())
    for name, value in pairs:
        name = name.strip()
        text = value[: 2 * LONGEST_VALUE].strip()[:LONGEST_VALUE]
        if not 0 < len(name) <= LONGEST_NAME or name in kept:
            continue
        room -= len(name) + len(text)
        if room < 0 or len(kept) == MOST_PAIRS:
            break
        kept[name] = text.encode("utf-8", "replace").decode()
    return kept


def _is_own(header: str) -> bool:
    return header.startswith(PREFIX)


def _as_text(value: str) -> str:
    """Decode a header value, which servers read as Latin-1, as the UTF-8 that most clients mean."""
    try:
        return value.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        return value
