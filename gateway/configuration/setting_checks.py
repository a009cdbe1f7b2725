"""Checks of settings before they are used: URLs, and unknown names, with suggestions of similar known ones."""

import difflib
import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit

HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?")
BLANK = re.compile(r"[\x00-\x20\x7f]")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,19}")
BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
MAX_PORT = 65_535
MAX_HOST_LENGTH = 253  # RFC 1035, section 2.3.4


def url_problem(value: str, schemes: Collection[str]) -> str:
    """Return why a URL is invalid, without quoting any part that may be a password; "" for a valid one."""
    scheme, separator, _ = value.partition("://")
    if not separator or scheme.lower() not in schemes:
        # Without a scheme, a user or password comes first.
        named = f"{scheme}://" if separator and SCHEME.fullmatch(scheme) else "this address"
        return f"{named} is not known; use {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if BLANK.search(value):
        return "an address has no blanks"
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return "the host or the port of this address cannot be one"
    if port == 0:
        return "an address has no port 0"
    if not is_host(host):
        if not host:
            return "this address names no host"
        return "the host of this address cannot be one"
    return ""


def is_port(text: str) -> bool:
    """Return whether a text is the number of a port that can be connected to."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= MAX_PORT


def is_host(host: str) -> bool:
    """Return whether a text can be the name or the IP address of a host."""
    if ":" not in host:
        try:
            ascii_host = host.encode("idna").decode() if not host.isascii() else host
        except UnicodeError:
            return False
        return len(ascii_host) <= MAX_HOST_LENGTH and HOST.fullmatch(ascii_host) is not None
    try:
        ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return False
    return True


# Unknown names, with suggestions of similar known ones.

# Kubernetes sets these variables in every container for services that are named "gateway" or "llm".
KUBERNETES_VARIABLES = re.compile(r"(GATEWAY|LLM)_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(TCP|UDP)\w*)")
MAX_SUGGESTIONS = 2
MIN_SIMILARITY = 0.7
MIN_PREFIX = 3


def suggest_similar(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known names most similar to `name`, or beginning with it; "" if there are
    none.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = (
        difflib.get_close_matches(name.lower(), by_lower, MAX_SUGGESTIONS, MIN_SIMILARITY)
        or [
            candidate
            for candidate in sorted(by_lower)
            if len(name) >= MIN_PREFIX and candidate.startswith(name.lower())
        ][:MAX_SUGGESTIONS]
    )
    if matches:
        return f"; did you mean {' or '.join(by_lower[match] for match in matches)}?"
    return ""


def unknown_variables(environment: Mapping[str, str], prefix: str, known: Collection[str]) -> list[str]:
    """Return a line for each variable that begins with `prefix` and is unknown.

    Names in `known`, those names with _FILE, and variables set by platforms are accepted.
    """
    full = {*known, *(f"{name}_FILE" for name in known)}
    return [
        f"{name}: there is no such setting{suggest_similar(name, full if name.endswith('_FILE') else known)}"
        for name in sorted(environment)
        if name.startswith(prefix) and name not in full and not KUBERNETES_VARIABLES.fullmatch(name)
    ]
