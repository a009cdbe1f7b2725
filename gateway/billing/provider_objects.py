"""Containers that providers made for callers with the platform's keys: which organization may name each again.

An answer names the container in which the provider ran code. The settlement that pays for the answer records it, for
all workers; a request that names one is looked up. All others are objects of the platform's account.
"""

import hashlib

from gateway.neutral.hosted_uses import HostedUse
from gateway.neutral.request import Request
from gateway.store.documents import DocumentRows, Documents
from gateway.store.journal import Row

KIND = "provider_object"
LIFETIME_S = 30 * 86_400.0  # no vendor keeps a container longer
MAX_OBJECTS = 200_000  # of an installation; each cost a session of a container
MAX_GIVEN = 16  # containers of one answer
SESSIONS = "code_sessions"


class ProviderObjects:
    """The containers of all organizations."""

    def __init__(self, documents: Documents, rows: DocumentRows) -> None:
        self._documents = documents
        self._rows = rows

    def record(self, organization_id: str, idents: tuple[str, ...], uses: tuple[HostedUse, ...]) -> list[Row]:
        """Return the rows that give containers to an organization, with the units that a session of them costs."""
        size = max([use.times for use in uses if use.reported == SESSIONS], default=1)
        value = f"{organization_id} {size}".encode()
        return [
            self._rows.put(KIND, _key_of(ident), value, LIFETIME_S, organization_id) for ident in idents[:MAX_GIVEN]
        ]

    def without_own(self, organization_id: str, uses: tuple[HostedUse, ...]) -> tuple[HostedUse, ...]:
        """Return the uses of a request without containers that were given to the organization. Unavailable."""
        left: list[HostedUse] = []
        sizes: dict[str, int] = {}
        for use in uses:
            size = self._size_of(organization_id, use.ident) if use.ident else 0
            if not size:
                left.append(use)
                continue
            tool = use.name.partition(".")[0]
            sizes[tool] = max(sizes.get(tool, 0), size)
        if len(left) == len(uses):
            return uses
        return tuple(_sized(use, sizes, left) for use in left)

    def _size_of(self, organization_id: str, ident: str) -> int:
        """Return the units of a session of a container, 0 for one that is not the organization's."""
        stored = self._documents.get(KIND, _key_of(ident))
        owner, _, size = stored.decode().partition(" ") if stored else ("", "", "")
        return int(size) if owner == organization_id else 0


def without_own_objects(objects: ProviderObjects, organization_id: str, request: Request) -> tuple[HostedUse, ...]:
    """Return the uses of a request without its organization's own containers; the same object where it has none."""
    uses = request.requirements.hosted_uses
    if any(use.ident for use in uses):
        return objects.without_own(organization_id, uses)
    return uses


def _sized(use: HostedUse, sizes: dict[str, int], left: list[HostedUse]) -> HostedUse:
    """Return the use with the known size of its container, unless it has others too."""
    known = sizes.get(use.name)
    foreign = any(other.name.partition(".")[0] == use.name and other.payment == "object" for other in left)
    if known is None or foreign or use.reported != SESSIONS or use.timed:
        return use
    return use._replace(times=known)


def _key_of(ident: str) -> str:
    return hashlib.sha256(ident.encode()).hexdigest()
