"""Shared parts of all exports: a limit per organization, response headers, and checks that the visitor has access."""

from collections.abc import Collection, Iterator, Sequence

from gateway.accounts.members import list_members
from gateway.errors import Forbidden, RateLimited, Unauthenticated
from gateway.store.shared_slots import HeldSlots
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Outbound
from gateway.telemetry.request_observers import ClosingBody

BUSY_RETRY_AFTER_S = 10.0


def download(
    visitor: Visitor,
    owners: Collection[str],
    file: str,
    media: str,
    pieces: Iterator[bytes],
    more: Sequence[tuple[str, str]] = (),
) -> Outbound:
    """Return the `pieces` as a file. It takes an export slot of each organization in `owners`. Raises RateLimited."""
    held = visitor.services.background.exports.take(owners)
    if held is None:
        raise RateLimited(
            "Your organization has reached its limit of simultaneous exports. Try again when one of them has ended.",
            code="too_many_exports",
            retry_after=BUSY_RETRY_AFTER_S,
        )
    headers = [
        ("Content-Type", media),
        ("Cache-Control", "no-store"),
        ("Content-Disposition", f'attachment; filename="{file}"'),
        *more,
    ]
    # Given back whether it is read to its end, breaks off, or is never begun.
    return Outbound(200, headers, ClosingBody(_holding(pieces, held), held.give))


def check_again(visitor: Visitor) -> None:
    """Check that the visitor still has the access with which the export began. Raises Unauthenticated if the session
    has ended, Forbidden if the visitor's access has changed. The error makes a broken export recognizable; an export
    that silently shows less would look complete."""
    services = visitor.services
    if visitor.account is not None:
        services.accounts.service_accounts.check(visitor.token)
        return
    if all(member.id != visitor.session.id for member in services.management.sessions.list_sessions(visitor.user_id)):
        raise Unauthenticated("The session has ended.", code="session_invalid")
    memberships = list_members(services.store.database, user_id=visitor.user_id)
    roles = {member.organization_id: member.role for member in memberships if member.status == "active"}
    if any(roles.get(member.organization_id) != member.role for member in visitor.memberships.values()):
        raise Forbidden("Your membership changed during the export. Start it again.")


def _holding(pieces: Iterator[bytes], held: HeldSlots) -> Iterator[bytes]:
    try:
        for piece in pieces:
            held.renew()
            yield piece
    finally:
        held.give()
