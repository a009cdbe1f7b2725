"""The figures of a saved view for its subscribers: the last seven complete days, and the change against the seven days
before. They are those of the page that the link opens, in the organization of the view."""

from datetime import UTC, timedelta
from functools import partial
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from gateway.accounts import saved_views
from gateway.accounts.members import MemberInfo, find_member
from gateway.accounts.organizations import find_organization
from gateway.accounts.saved_views import SavedView
from gateway.accounts.sessions import SessionInfo
from gateway.accounts.view_subscriptions import ViewSubscription
from gateway.callers.models import User
from gateway.clock import to_datetime
from gateway.errors import Forbidden, NotFound
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.rollup_table import OTHER
from gateway.surfaces.console.explore_periods import CUSTOM
from gateway.surfaces.console.explore_questions import ExploreAnswer, answer
from gateway.surfaces.console.grouping import GROUPS
from gateway.surfaces.console.plots import OTHER_SERIES
from gateway.surfaces.console.shown_figures import show_change
from gateway.surfaces.console.usage_measures import MEASURES, Measure
from gateway.surfaces.console.usage_reader import NameKey
from gateway.surfaces.visitors.visitor import Visitor
from gateway.telemetry.view_reports import ViewFact, ViewReport
from gateway.telemetry.weekly_views import ComposedView
from gateway.worker.services import Services

VIEWS_PATH = "/console/explore/views"
DAYS = 7
MAX_FACTS = 8
MAX_NAME_LENGTH = 80
NO_ACCESS = "The person who subscribed is no active member with access to usage any more."
NO_CHANNEL = "The person who subscribed may not change the addresses for alerts any more."


def visit_as_subscriber(services: Services, subscription: ViewSubscription) -> Visitor:
    """Return the visitor of a subscription: the person who subscribed, in the view's organization alone. Raises
    Forbidden for a person without access."""
    database = services.store.database
    try:
        member = find_member(database, subscription.organization_id, subscription.user_id)
        organization = find_organization(database, subscription.organization_id)
    except NotFound:
        raise Forbidden(NO_ACCESS) from None
    user = database.read(partial(User.get_or_none, User.id == subscription.user_id))
    is_active = user is not None and user.status == "active" and organization.status == "active"
    if not is_active or member.status != "active" or member.suspended:
        raise Forbidden(NO_ACCESS)
    visitor = Visitor(services, _session_of(member), {member.organization_id: member})
    if not visitor.may("usage:read", member.organization_id):
        raise Forbidden(NO_ACCESS)
    if subscription.hook_id and not visitor.manages("alerts:write", member.organization_id):
        raise Forbidden(NO_CHANNEL)
    return visitor


def _session_of(member: MemberInfo) -> SessionInfo:
    return SessionInfo("", member.user_id, member.email, member.name, 0, 0)


def compose(services: Services, subscription: ViewSubscription) -> ComposedView:
    """Return a view with the figures that its subscriber may see. Raises Forbidden, NotFound (view, project, key),
    Unavailable."""
    visitor = visit_as_subscriber(services, subscription)
    database = services.store.database
    view = saved_views.find(database, subscription.view_id, visitor.memberships.keys(), visitor.user_id)
    with services.background.reports.turn(visitor.user_id):
        report = _report(visitor, view)
    return ComposedView(report, visitor.memberships[view.organization_id].email)


def _report(visitor: Visitor, view: SavedView) -> ViewReport:
    today = to_datetime(visitor.services.clock.now_us()).astimezone(UTC).date()
    weeks = []
    for ago in (1, DAYS + 1):
        last = today - timedelta(days=ago)
        days = {"from": (last - timedelta(days=DAYS - 1)).isoformat(), "to": last.isoformat()}
        weeks.append({"timeRange": CUSTOM, **days})
    kept = {name: value for name, value in parse_qsl(view.query) if name not in ("compare", "compareModel")}
    now, before = (_add_up(answer(visitor, {**kept, **week})) for week in weeks)
    measure = MEASURES[now.measure]
    base = visitor.services.telemetry.weekly_views.base_url
    link = f"{base}{VIEWS_PATH}/{view.id}?{urlencode({**weeks[0], 'compare': 'before'})}" if base else ""
    return ViewReport(
        view.name,
        _write_sum(measure, now.total, before.total),
        measure.label,
        now.groups,
        _list_facts(measure, now, before),
        weeks[0]["from"],
        weeks[0]["to"],
        link,
    )


class WeekSums(NamedTuple):
    """The values of a week: in total, and by name; None for a ratio of nothing. `sizes` rank the names."""

    measure: str
    groups: str
    total: int | None
    values: dict[NameKey, int | None]
    sizes: dict[NameKey, int]
    labels: dict[NameKey, str]


def _add_up(answered: ExploreAnswer) -> WeekSums:
    choices, usage, times = answered.choices, answered.usage, answered.times
    measure = answered.question.measure
    total = ActivityFigures()
    for figures in usage.steps.values():
        total.add(figures)
    values = {ident: measure.value(named.figures) for ident, named in usage.names.items()}
    if times is not None:
        values = {ident: times.names.get(ident) for ident in usage.names}
    return WeekSums(
        choices.measure,
        " and ".join(GROUPS[group].label for group in choices.groups),
        measure.value(total) if times is None else times.total,
        values,
        {ident: measure.size(named.figures) for ident, named in usage.names.items()},
        {ident: " ".join(named.named.name.split())[:MAX_NAME_LENGTH] for ident, named in usage.names.items()},
    )


def _list_facts(measure: Measure, now: WeekSums, before: WeekSums) -> tuple[ViewFact, ...]:
    """Return the largest names, and all others of a sum as one."""
    ranked = sorted(now.sizes, key=lambda ident: (ident[1] == OTHER, -now.sizes[ident], ident))
    ranked = [ident for ident in ranked if now.sizes[ident]]
    shown = ranked[:MAX_FACTS]
    facts = [
        ViewFact(
            now.labels[ident] or "–",
            _write(measure, now.values[ident]),
            _write_change(now.values[ident], before.values.get(ident)),
        )
        for ident in shown
    ]
    if len(ranked) > MAX_FACTS and not measure.is_ratio:
        rest = sum(now.values[ident] or 0 for ident in ranked[MAX_FACTS:])
        facts.append(ViewFact(OTHER_SERIES, _write(measure, rest), ""))
    return tuple(facts)


def _write_sum(measure: Measure, now: int | None, before: int | None) -> str:
    """Return the sentence about the sum of a week."""
    text = f"{measure.label}: {_write(measure, now)}"
    if not before:
        return f"{text}; nothing in the week before."
    if now is None:
        return f"{text}; the week before: {_write(measure, before)}."
    return f"{text}, {show_change(now, before)} than in the week before ({_write(measure, before)})."


def _write_change(now: int | None, before: int | None) -> str:
    if now is None:
        return ""
    return show_change(now, before) if before else "new"


def _write(measure: Measure, value: int | None) -> str:
    return "–" if value is None else measure.write(value)
