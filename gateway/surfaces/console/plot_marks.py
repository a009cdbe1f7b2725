"""The marks on the plots of Explore: what happened in a period that may explain a change of its usage, as far as the
visitor may see it.

Changes of routes and limits come from the audit log, outages of providers and alerts from the past alerts.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import orjson

from gateway.accounts import audit
from gateway.accounts.audit import AuditEntry
from gateway.accounts.keys import KeyInfo
from gateway.accounts.teams import list_teams
from gateway.callers.permissions import Permission
from gateway.clock import HOUR_US, to_iso
from gateway.metering.activity import Owners, measure
from gateway.metering.rollups.queries import at_once
from gateway.surfaces.console.audit_pages import describe_action
from gateway.surfaces.console.plots import PlotMark
from gateway.surfaces.visitors.report_windows import ReportRange
from gateway.surfaces.visitors.visitor import Visitor
from gateway.telemetry.alert_history import PastAlert

ROUTE, LIMIT, OUTAGE, ALERT = "route", "limit", "outage", "alert"
# Actions of the audit log that may change usage → the kind of their mark, and who sees all of them.
ACTIONS: dict[str, tuple[str, Permission]] = {
    **dict.fromkeys(("route.publish", "route.delete"), (ROUTE, "rules:read")),
    **dict.fromkeys(("limit.set", "limit.delete", "limit.raise"), (LIMIT, "limits:read")),
    "api_key.update_limit": (LIMIT, "keys:read"),
    "member.update_limit": (LIMIT, "members:read"),
    "team.update_limit": (LIMIT, "teams:read"),
    "rate_limit.update": (LIMIT, "project_rates:read"),
}
# Outages of providers; other organizations' keys fail in alerts of their own.
RESTING, REFUSED = "provider.resting", "credential.refused"
NAMED = ("name", "label", "route", "limit", "description")  # members of details that name a subject
OWNED = ("id", "key", "member", "team")  # facts of an alert that may be about the visitor
MAX_CHANGES = 100
MAX_ALERTS = 200
MAX_LISTED = 50


class Happening(NamedTuple):
    """Something that happened. `kind` is the class of its mark, `path` the page about it, "" without one; `until` is
    the time of its end, "" without one."""

    at_us: int
    kind: str
    text: str
    path: str = ""
    until: str = ""

    @property
    def at(self) -> str:
        """Return the time as ISO 8601."""
        return to_iso(self.at_us)


def find_happenings(
    visitor: Visitor, window: ReportRange, owners: Owners, keys: Mapping[str, KeyInfo]
) -> list[Happening]:
    """Return what happened in a period to the usage of some owners, the oldest first: at most MAX_LISTED, the newest.
    `keys` are those that the visitor sees. Raises Unavailable."""
    changes = [
        happening
        for organization_id in visitor.memberships
        for entry in audit.list_changes(
            visitor.services.store.database,
            organization_id,
            tuple(ACTIONS),
            (window.span.start_us, window.span.end_us),
            MAX_CHANGES,
        )
        if (happening := _show_change(visitor, entry, keys)) is not None
    ]
    found = [*changes, *_find_alerts(visitor, window, owners, keys)]
    return sorted(found, key=lambda one: (one.at_us, one.text))[-MAX_LISTED:]


def place_marks(happenings: Sequence[Happening], bars: Sequence[tuple[int, int]]) -> list[PlotMark]:
    """Return the marks on bars, of which each is the hours [first, end) since the epoch."""
    marks: dict[int, PlotMark] = {}
    for happening in happenings:
        hour = happening.at_us // HOUR_US
        place = next((place for place, (first, end) in enumerate(bars) if first <= hour < end), None)
        if place is None:
            continue
        known = marks.get(place)
        texts = (*known.texts, happening.text) if known else (happening.text,)
        kind = OUTAGE if OUTAGE in (happening.kind, known.kind if known else "") else happening.kind
        marks[place] = PlotMark(place, kind, texts)
    return list(marks.values())


def _show_change(visitor: Visitor, entry: AuditEntry, keys: Mapping[str, KeyInfo]) -> Happening | None:
    """Return a change; None if the visitor may not see it. The audit log has the name of the person
    who made it, for those who may read it."""
    kind, permission = ACTIONS[entry.action]
    organization_id = entry.organization_id
    membership = visitor.memberships[organization_id]
    is_own = entry.subject in keys or entry.subject == membership.id
    if not (visitor.manages(permission, organization_id) or is_own):
        return None
    detail: dict[str, Any] = orjson.loads(entry.detail)
    name = next((str(detail[name]) for name in NAMED if detail.get(name)), "")
    if entry.subject in keys:
        name = keys[entry.subject].description or entry.subject
    text = f"{describe_action(entry.action)}{f': {name}' if name else ''}"
    path = "/console/audit" if visitor.manages("audit:read", organization_id) else ""
    return Happening(entry.at_us, kind, text, path)


def _find_alerts(visitor: Visitor, window: ReportRange, owners: Owners, keys: Mapping[str, KeyInfo]) -> list[Happening]:
    history = visitor.services.telemetry.alert_history
    span = window.span
    alerts = history.read(tuple(visitor.memberships), span.start_us, span.end_us, MAX_ALERTS)
    outages = history.read(("",), span.start_us, span.end_us, MAX_ALERTS, (RESTING,))
    used: set[str] = set()
    if outages:
        database = visitor.services.store.database
        rows = at_once(database, lambda: measure(database, owners, window.whole().span, "model", ("requests",)))
        used = {row.value[1] for row in rows}
    own_teams = cache(partial(_list_own_teams, visitor))
    shown = [_show_alert(alert) for alert in alerts if _may_see(visitor, alert, keys, own_teams)]
    return [*shown, *(_show_alert(alert) for alert in outages if alert.facts.get("provider") in used)]


def _list_own_teams(visitor: Visitor, organization_id: str) -> set[str]:
    """Return the ids of the teams of a visitor in an organization."""
    member_id = visitor.memberships[organization_id].id
    return {team.id for team in list_teams(visitor.services.store.database, organization_id, member_id=member_id)}


def _may_see(
    visitor: Visitor, alert: PastAlert, keys: Mapping[str, KeyInfo], own_teams: Callable[[str], set[str]]
) -> bool:
    """Return whether a visitor sees an alert of their organization: those who manage alerts see all, others those about
    their keys, themselves and their teams."""
    if visitor.manages("alerts:read", alert.organization_id):
        return True
    membership = visitor.memberships[alert.organization_id]
    about = {str(alert.facts[name]) for name in OWNED if name in alert.facts}
    if about & {membership.id, *keys}:
        return True
    teams = {ident for ident in about if ident.startswith("team_")}
    return bool(teams) and bool(teams & own_teams(alert.organization_id))


def _show_alert(alert: PastAlert) -> Happening:
    is_outage = alert.event in (RESTING, REFUSED)
    path = f"/console/providers/{alert.facts['provider']}" if alert.event == RESTING else ""
    until = to_iso(alert.ended_us) if alert.ended_us else ""
    return Happening(alert.began_us, OUTAGE if is_outage else ALERT, alert.message, path, until)
