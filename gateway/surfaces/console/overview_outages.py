"""The cards of the overview about the present and the time since the last visit: outages of the providers that the
visitor uses, and what changed and happened since then."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from gateway.accounts.last_visits import note_visit
from gateway.clock import DAY_US, HOUR_US, MINUTE_US, to_iso
from gateway.errors import Unavailable
from gateway.surfaces.console.explore_periods import CUSTOM, write_hour
from gateway.surfaces.console.overview_changes import ChangedLine, find_changes
from gateway.surfaces.console.plot_marks import RESTING, Happening, find_happenings
from gateway.surfaces.console.provider_pages import list_cooldowns
from gateway.surfaces.visitors.report_windows import hours_between
from gateway.surfaces.visitors.usage_report import scope_of
from gateway.surfaces.visitors.visitor import Visitor

# An outage that began longer ago was reported again since.
LOOK_BACK_US = 7 * DAY_US
MAX_ALERTS = 500
MAX_MODELS = 5  # of a provider that are named
MAX_HAPPENINGS = 6
SHORTEST_US = 30 * MINUTE_US  # since the last visit, for something to tell
LONGEST_HOURS = 7 * 24  # that Explore shows by hour


class AffectedModel(NamedTuple):
    """A model that the visitor used at a provider, and the other providers that serve it and are not in cooldown."""

    name: str
    instead: tuple[str, ...]


class Outage(NamedTuple):
    """A provider that requests try last at present. `since` is its beginning as ISO 8601, "" if that is not known.
    `more` is the number of further models that the visitor used there."""

    name: str
    path: str
    parts: str
    reason: str
    since: str
    models: tuple[AffectedModel, ...]
    more: int


def find_outages(visitor: Visitor, used: Collection[tuple[str, str]]) -> list[Outage]:
    """Return the outages of providers among `used`, pairs of model and provider. Own keys have notices of their own.
    Unavailable."""
    cooldowns = list_cooldowns(visitor, ())
    services = visitor.services
    catalogue = services.routing.catalogue.current()
    ailing = sorted({provider for _, provider in used} & set(cooldowns))
    if not ailing:
        return []
    now_us = services.clock.now_us()
    alerts = services.telemetry.alert_history.read(("",), now_us - LOOK_BACK_US, now_us + 1, MAX_ALERTS, (RESTING,))
    begun = {str(alert.facts.get("provider")): alert.began_us for alert in alerts if not alert.ended_us}
    outages = []
    for provider in ailing:
        models = sorted(model for model, served_by in used if served_by == provider)
        affected = []
        for model in models[:MAX_MODELS]:
            known = catalogue.models.get(model)
            others = {mapping.provider for mapping in known.mappings} if known else set()
            instead = sorted(
                catalogue.providers[one].name for one in others - set(cooldowns) if one in catalogue.providers
            )
            affected.append(AffectedModel(model, tuple(instead)))
        shown = cooldowns[provider]
        outages.append(
            Outage(
                catalogue.providers[provider].name if provider in catalogue.providers else provider,
                f"/console/providers/{provider}",
                ", ".join(dict.fromkeys(one.part for one in shown)),
                shown[0].reason,
                to_iso(begun[provider]) if provider in begun else "",
                tuple(affected),
                len(models) - len(affected),
            )
        )
    return outages


class SinceVisit(NamedTuple):
    """The changes since the last visit, which ended `at` (ISO 8601), compared with as many hours before."""

    at: str
    changes: list[ChangedLine]
    happenings: list[Happening]


def find_since_visit(visitor: Visitor) -> SinceVisit | None:
    """Note the visit, and return what changed since the one before; None at the first visit and after a short time."""
    services = visitor.services
    now_us = services.clock.now_us()
    before_us = 0
    with suppress(Unavailable):  # the figures of the page do not depend on it
        before_us = note_visit(services.store.database, visitor.user_id, list(visitor.memberships), now_us)
    if not before_us or now_us - before_us < SHORTEST_US:
        return None
    end = now_us // HOUR_US + 1
    first = max(before_us // HOUR_US, end - LONGEST_HOURS)
    window = hours_between(first, end)
    period: Mapping[str, str] = {"timeRange": CUSTOM, "from": write_hour(first), "to": write_hour(end - 1)}
    scope = scope_of(visitor, None)
    happened = find_happenings(visitor, window, scope.owners, scope.keys)
    recent = [one for one in happened if one.at_us >= before_us]
    return SinceVisit(to_iso(before_us), find_changes(visitor, window, period), recent[-MAX_HAPPENINGS:])
