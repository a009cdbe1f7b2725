"""The card "Needs attention" of the overview: requests for more of limits, limits and credits near their end, failing
credentials, callbacks and channels, credentials that end soon, alerts that were not looked at, unusual days, retiring
models and open invitations. Each line leads to the page that settles it, for those who may settle it."""

from collections.abc import Iterable
from datetime import date
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, urlencode

from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import list_members
from gateway.accounts.spending_limits import LimitInfo, SpendingLimits
from gateway.clock import DAY_US, to_datetime
from gateway.limits.budgets import Status
from gateway.limits.models import MEMBER
from gateway.limits.owned_limits import OwnedLimit, list_of_owners
from gateway.limits.owned_rows import PER_SESSION, parse_owned
from gateway.money import round_usd
from gateway.routing.cooldowns import POLICIES
from gateway.surfaces.console.bell_pages import PATH as NOTICES
from gateway.surfaces.console.bell_pages import count_fresh, find_alerts
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound
from gateway.telemetry.alert_history import PastAlert
from gateway.telemetry.unusual_days import EVENT as UNUSUAL
from gateway.worker.services import Services

NEAR_PERCENT = 80
RETIRING_DAYS = 30
LOW_CREDITS_DAYS = 7
ENDING_DAYS = 7
SHORT_LIVED_US = 2 * DAY_US  # keys that were made to end soon need nobody's attention
CALLBACK_DAYS = 7
UNUSUAL_DAYS = 2
KINDS = ("member", "team", "project")  # owners whose limits are looked at, beside keys
MAX_LIMITS = 300  # of these owners in an organization, of which most is used
MAX_OF_KIND = 3  # lines of one kind; the rest is one line
PROVIDER_KEYS = "/console/providers/keys"
BUDGETS = "/console/budgets"
MAX_NOTICES = 10


class AttentionItem(NamedTuple):
    """A notice; `level` is warn or bad, `percent` the used share of a budget."""

    level: str
    text: str
    path: str
    percent: int | None = None


def find_budgets(keys: Iterable[KeyInfo], statuses: dict[str, Status]) -> list[AttentionItem]:
    """Return active keys that used most of a spending limit, the fullest first."""
    notices = []
    for key in keys:
        status = statuses[key.id]
        pairs = (
            (status.usage_nusd, status.total_nusd, "spending limit"),
            (status.period_usage_nusd, status.period_nusd, "limit of this period"),
        )
        for used, limit, name in pairs:
            if key.state == "active" and limit and used * 100 >= limit * NEAR_PERCENT:
                percent = used * 100 // limit
                text = f"“{key.description}” used {percent} % of its {name} of {round_usd(limit)}."
                level = "bad" if percent >= 100 else "warn"
                notices.append(AttentionItem(level, text, f"/console/keys/{key.id}", percent))
    return sorted(notices, key=lambda notice: -(notice.percent or 0))


def find_credits(visitor: Visitor, average_nusd: int) -> list[AttentionItem]:
    """Return the managed organizations with credits that are used up, or would last a few days at the visitor's
    average spending of a day."""
    notices = []
    for organization in visitor.organizations():
        if not visitor.manages("credits:read", organization.id):
            continue
        balance = visitor.services.management.ledger.balance(organization.id)
        left = balance.balance_nusd
        if balance.unlimited or not balance.funded_nusd:
            continue
        if left <= 0:
            notices.append(AttentionItem("bad", f"{organization.name} has no credits left.", "/console/settings"))
        elif left < average_nusd * LOW_CREDITS_DAYS:
            days = left // average_nusd
            unit = "day" if days < 2 else "days"
            text = f"The credits of {organization.name} ({round_usd(left)}) last about {max(1, days)} more {unit}."
            notices.append(AttentionItem("warn", text, "/console/settings"))
    return notices


def find_provider_keys(services: Services, visitor: Visitor) -> list[AttentionItem]:
    """Return the provider keys of managed organizations that requests currently avoid because they fail."""
    cooldowns = services.routing.health.cooldowns
    now = services.clock.monotonic()
    names = services.routing.catalogue.current().providers
    notices = []
    for organization_id in visitor.memberships:
        if not visitor.manages("providers:read", organization_id):
            continue
        for key in services.management.provider_keys.list_keys(organization_id):
            place = f"{key.provider}#{key.id}"
            if key.status == "active" and cooldowns.until(place, now):
                reason = POLICIES[cooldowns.kind(place)].text
                text = f"Your {names[key.provider].name} key “{key.label or key.mask}” fails: {reason}."
                notices.append(AttentionItem("bad", text, f"{PROVIDER_KEYS}?organization={organization_id}"))
    return notices


def find_retiring(services: Services, used: Iterable[tuple[str, str]], today: date) -> list[AttentionItem]:
    """Return the models among `used`, pairs of model and provider, that the provider retires soon."""
    catalogue = services.routing.catalogue.current()
    notices = []
    for model, provider in sorted(used):
        known = catalogue.models.get(model)
        for mapping in known.mappings if known else ():
            end = _read_day(mapping.deactivated)
            if mapping.provider == provider and end is not None and 0 <= (end - today).days <= RETIRING_DAYS:
                text = f"{provider}/{model} will be retired on {end:%d %B %Y}. Move to another model."
                notices.append(AttentionItem("warn", text, "/console/explore"))
    return notices


def _read_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None


def find_raise_requests(visitor: Visitor) -> list[AttentionItem]:
    """Return the requests for more of limits that the visitor may grant."""
    store = visitor.services.store
    notices = []
    for organization_id in visitor.memberships:
        if not visitor.manages("limits:raise", organization_id):
            continue
        requests = SpendingLimits(store.database, store.control).requests(organization_id)
        if not requests:
            continue
        people = {
            member.user_id: member.name or member.email for member in list_members(store.database, organization_id)
        }
        owners = {owned.owner for one in requests if (owned := parse_owned(one.name)) is not None}
        found = store.database.read(partial(list_of_owners, store.database, organization_id, owners))
        names = {limit.id: name_limit(limit) for limit in found}
        for one in requests:
            name = names.get(one.name, one.name)
            text = f"{people.get(one.user_id, one.user_id)} asks for {round_usd(one.amount_nusd)} more of “{name}”."
            notices.append(AttentionItem("warn", text, f"/console/budgets/{organization_id}/{quote(one.name)}"))
    return notices


def name_limit(limit: OwnedLimit) -> str:
    """Return a limit that belongs to a key, member, team, provider key or project, as people know it."""
    name, period = limit.name, limit.rule.period
    span = f"per {period or name.part}" if period or name.part in PER_SESSION else "in total"
    owner = limit.owner_name if name.kind == MEMBER else f"{name.kind.replace('_', ' ')} {limit.owner_name}"
    return f"{owner}, {round_usd(limit.rule.amount_nusd)} {span}"


def find_limits(visitor: Visitor) -> list[AttentionItem]:
    """Return the limits of organizations, members, teams and projects of which most is used, the fullest first."""
    store = visitor.services.store
    limits = SpendingLimits(store.database, store.control)
    found: list[tuple[int, LimitInfo, str]] = []
    for organization_id in visitor.memberships:
        if not visitor.manages("limits:read", organization_id):
            continue
        used = limits.list_owned(organization_id, KINDS, "", MAX_LIMITS, NEAR_PERCENT)
        for info in (*limits.list_limits(organization_id), *used):
            state = info.state
            limit = info.rule.amount_nusd if state.limit_nusd is None else state.limit_nusd
            if limit and state.used_nusd * 100 >= limit * NEAR_PERCENT:
                found.append((state.used_nusd * 100 // limit, info, organization_id))
    found.sort(key=lambda one: -one[0])
    return [_limit_item(percent, info, organization_id) for percent, info, organization_id in found]


def _limit_item(percent: int, info: LimitInfo, organization_id: str) -> AttentionItem:
    owner = f"{info.owned.kind} {info.owner_name}" if info.owned is not None else f"“{info.rule.name}”"
    ident = str(info.owned) if info.owned is not None else info.rule.name
    text = f"{percent} % of the limit of {owner} ({round_usd(info.rule.amount_nusd)}) is used."
    level = "bad" if percent >= 100 else "warn"
    return AttentionItem(level, text, f"{BUDGETS}/{organization_id}/{quote(ident)}", percent)


def find_ending(visitor: Visitor, keys: Iterable[KeyInfo], now_us: int) -> list[AttentionItem]:
    """Return the API keys and service accounts that end within a week, the first to end first."""
    until_us = now_us + ENDING_DAYS * DAY_US
    ending: list[tuple[int, str, str]] = []
    for key in keys:
        end_us = key.expires_at_us
        if key.state != "active" or end_us is None or not now_us < end_us <= until_us:
            continue
        if end_us - key.created_at_us > SHORT_LIVED_US:
            ending.append((end_us, f"The API key “{key.description}”", f"/console/keys/{key.id}"))
    for organization_id in visitor.memberships:
        if not visitor.manages("automation:read", organization_id):
            continue
        for account in visitor.services.management.service_accounts.list_accounts(organization_id):
            end_us = account.expires_at_us
            if account.status == "active" and end_us is not None and now_us < end_us <= until_us:
                path = f"/console/automation?organization={organization_id}"
                ending.append((end_us, f"The service account “{account.name}”", path))
    ending.sort()
    return [AttentionItem("warn", f"{name} ends {_write_day(end_us, now_us)}.", path) for end_us, name, path in ending]


def _write_day(at_us: int, now_us: int) -> str:
    days = (to_datetime(at_us).date() - to_datetime(now_us).date()).days
    return {0: "today", 1: "tomorrow"}.get(days, f"in {days} days")


def find_undelivered(visitor: Visitor, now_us: int) -> list[AttentionItem]:
    """Return the addresses that take no callbacks about jobs, and no alerts."""
    services = visitor.services
    names = {one.id: one.name for one in visitor.organizations()}
    items = []
    for organization_id in visitor.memberships:
        if visitor.manages("logs:read", organization_id):
            stores = (services.engine.batches.callbacks, services.engine.videos.callbacks)
            from_us = now_us - CALLBACK_DAYS * DAY_US
            count = sum(store.count_undelivered(organization_id, from_us) for store in stores)
            if count:
                what = "callback about a job was" if count == 1 else "callbacks about jobs were"
                text = (
                    f"{count:,} {what} not delivered in {names.get(organization_id, '')} within {CALLBACK_DAYS} days."
                )
                items.append(AttentionItem("bad", text, "/console/jobs"))
        if visitor.manages("alerts:read", organization_id):
            for hook in services.telemetry.hooks.list_hooks(organization_id):
                problem = services.telemetry.alerts.trouble_of(hook.id)
                if problem:
                    text = f"Alerts do not reach {hook.url.removeprefix('mailto:')[:80]}: {problem}"
                    items.append(AttentionItem("bad", text, "/console/alerts"))
    return items


def find_alert_items(visitor: Visitor, inbound: Inbound, now_us: int) -> list[AttentionItem]:
    """Return the unusual days that go on, and one line for the other alerts that the visitor has not seen."""
    alerts = find_alerts(visitor, now_us)
    unusual = [
        alert
        for alert in alerts
        if alert.event == UNUSUAL and not alert.ended_us and alert.began_us > now_us - UNUSUAL_DAYS * DAY_US
    ]
    items = [AttentionItem("bad", _sentence(alert), _path_of(alert)) for alert in unusual]
    fresh = count_fresh(inbound, [alert for alert in alerts if alert not in unusual])
    if fresh:
        newest = next(alert for alert in alerts if alert not in unusual)
        what = (
            "One alert that you have not seen" if fresh == 1 else f"{fresh} alerts that you have not seen, the newest"
        )
        items.append(AttentionItem("warn", f"{what}: {_sentence(newest)}", NOTICES))
    return items


def _sentence(alert: PastAlert) -> str:
    return f"{alert.message[:1].upper()}{alert.message[1:]}."


def _path_of(alert: PastAlert) -> str:
    """Return the page that shows the day of a key, person or session hour by hour."""
    facts = alert.facts
    if "key" in facts:
        return f"/console/keys/{facts['key']}"
    if "session" in facts:
        query = {"projectId": str(facts.get("project", "")), "session": str(facts["session"])}
        return f"/console/sessions/turns?{urlencode(query)}"
    return NOTICES


def find_invitations(visitor: Visitor, now_us: int) -> list[AttentionItem]:
    """Return a line for the open invitations of each organization whose people the visitor manages."""
    items = []
    for organization_id in visitor.memberships:
        if not visitor.manages("invitations:read", organization_id):
            continue
        waiting = visitor.services.management.invitations.list_invitations(organization_id)
        if waiting:
            first = min(waiting, key=lambda one: one.expires_at_us)
            ends = _write_day(first.expires_at_us, now_us)
            text = f"The invitation of {first.email} is open and ends {ends}."
            if len(waiting) > 1:
                text = f"{len(waiting)} invitations are open; that of {first.email} ends {ends}."
            items.append(AttentionItem("warn", text, f"/console/people?organization={organization_id}"))
    return items


def choose_items(groups: Iterable[list[AttentionItem]]) -> tuple[list[AttentionItem], int]:
    """Return the lines of the card, a few of each kind and what is urgent first, and the number of all others."""
    everything = [item for group in groups for item in group[:MAX_OF_KIND]]
    total = sum(len(group) for group in groups)
    shown = sorted(everything, key=lambda item: item.level != "bad")[:MAX_NOTICES]
    return shown, total - len(shown)
