"""The check that no subject of a limit that a higher role set ends: teams, projects, keys and provider keys."""

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.admin.held_limits import SubjectHold
from gateway.surfaces.management.managed_operation import ManagedCall


def hold_subject(
    call: ManagedCall[Any], organization_id: str, kinds: tuple[str, ...], ident: str
) -> Callable[[], None]:
    """Return what raises Forbidden (limit_not_yours) within the transaction that would end a subject."""
    sets_limits = call.visitor.manages("limits:write", organization_id)
    hold = SubjectHold(call.database, organization_id, call.actor, sets_limits)
    return partial(hold.check_end, kinds, ident)
