"""The names of repositories, as coding agents report them: from OpenTelemetry's attributes, without credentials."""

import re
from collections.abc import Callable

# OpenTelemetry's names of a repository and of the person or organization that it belongs to.
REPOSITORY = "vcs.repository.name"
REPOSITORY_OWNER = "vcs.owner.name"
# Texts of attributes are cut at this length: of a longer address the end of its credentials may be missing.
MAX_NAME = 255
SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,20}://", re.IGNORECASE | re.ASCII)
# An authority whose credentials have no end: a port is a number, of at most five digits.
UNENDED = re.compile(r"[^/]*:(?!\d{1,5}(?:/|$))", re.ASCII)
QUERY = re.compile(r"[?#]")


def repository_of(read: Callable[[str], str]) -> str:
    """Return the repository of a point as owner/name, or its name alone; "" if the sender names none. Of the address of
    a remote, host and path are kept: clones by HTTPS often have a token in it."""
    name = read(REPOSITORY)
    owner = read(REPOSITORY_OWNER) if name else ""
    if max(len(name), len(owner)) >= MAX_NAME:
        return ""
    shown = clean_repository(name)
    before = clean_repository(owner)
    return f"{before}/{shown}"[:MAX_NAME] if before and shown else shown


def clean_repository(text: str) -> str:
    """Return a name without the scheme, user, password, query and fragment of an address, and without what cannot be
    seen: a name that looks like another one is a lie."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    text = text.strip()
    address = SCHEME.match(text)
    if address is not None:
        text = text[address.end() :]
    has_user = "@" in text
    text = QUERY.split(text.rpartition("@")[2], maxsplit=1)[0]
    if address is not None and not has_user and UNENDED.match(text):
        return ""
    return text.strip("/ ").removesuffix(".git")
