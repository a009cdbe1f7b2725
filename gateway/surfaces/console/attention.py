"""The things that need attention on the overview: credits and budgets near their end, failing provider keys, providers
in cooldown, retiring models."""

from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

from gateway.accounts.keys import KeyInfo
from gateway.limits.budgets import Status
from gateway.money import round_usd
from gateway.routing.cooldowns import POLICIES
from gateway.surfaces.console.providers.provider_states import list_cooldowns
from gateway.surfaces.visitor import Visitor
from gateway.worker.services import Services

NEAR_PERCENT = 80
RETIRING_DAYS = 30
LOW_CREDITS_DAYS = 7
PROVIDER_KEYS = "/console/providers/keys"
MAX_NOTICES = 8


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
            (status.usage_nusd, status.limits.total_nusd, "spending limit"),
            (status.period_usage_nusd, status.limits.period_nusd, "limit of this period"),
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


def find_cooldowns(visitor: Visitor, used: Iterable[str]) -> list[AttentionItem]:
    """Return the providers among `used` that requests try last at present. Own keys have notices of their own."""
    shown = list_cooldowns(visitor, ())
    names = visitor.services.routing.catalogue.current().providers
    notices = []
    for provider in sorted(set(used) & set(shown)):
        first = shown[provider][0]
        text = f"{names[provider].name} is in cooldown ({first.part}): {first.reason}."
        notices.append(AttentionItem("warn", text, f"/console/providers/{provider}"))
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
                notices.append(AttentionItem("warn", text, "/console/usage"))
    return notices


def _read_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None
