"""The health of providers as the visitor may see it: figures of the last hour, and cooldowns with their reasons."""

from collections.abc import Iterable
from typing import NamedTuple

from gateway.accounts.provider_keys import ProviderKeyInfo
from gateway.routing.cooldowns import POLICIES, provider_of
from gateway.routing.sliding_window import Counts
from gateway.surfaces.visitor import Visitor

PLATFORM_KEY = "a key of the gateway"


class ProviderFigures(NamedTuple):
    """Figures of the last hour. None: no requests, or none that tell."""

    requests: int
    uptime: float | None
    latency_ms: float | None
    throughput: float | None


class ShownCooldown(NamedTuple):
    """A cooldown: the part of a provider that requests try last, the reason, and the seconds that are left."""

    part: str
    reason: str
    left_s: int


class ShownIdentity(NamedTuple):
    """A workload identity of the installation: the source of its token, "" before the first one, the expiry in
    microseconds, 0 without a valid token, and the failure of the last attempt, "" for none."""

    source: str
    expires_us: int
    failure: str


def sum_figures(history: Iterable[Counts]) -> ProviderFigures:
    """Return the figures of the minutes of a provider."""
    total = Counts()
    for counts in history:
        total.add(counts)
    requests = total.succeeded + total.failed
    return ProviderFigures(
        requests,
        100 * total.succeeded / requests if requests else None,
        total.wait_ms / total.waits if total.waits else None,
        1000 * total.tokens / total.token_ms if total.token_ms else None,
    )


def list_own_keys(visitor: Visitor) -> list[ProviderKeyInfo]:
    """Return the provider keys of the organizations that the visitor manages."""
    keys = visitor.services.management.provider_keys
    managed = [name for name in visitor.memberships if visitor.manages("providers:read", name)]
    return [key for name in managed for key in keys.list_keys(name)]


def list_cooldowns(visitor: Visitor, own: Iterable[ProviderKeyInfo]) -> dict[str, list[ShownCooldown]]:
    """Return the cooldowns by provider. Those of other organizations' keys are left out."""
    services = visitor.services
    cooldowns = services.routing.health.cooldowns
    now = services.clock.monotonic()
    names = {key.id: f"your key {key.label or key.mask}" for key in own}
    for credentials in services.routing.credentials.platform().values():
        names |= {credential.ident: PLATFORM_KEY for credential in credentials if credential.ident}
    shown: dict[str, list[ShownCooldown]] = {}
    for key, kind in cooldowns.active().items():
        place, _, organization = key.partition("@")
        mapping, _, ident = place.partition("#")
        foreign = organization and organization not in visitor.memberships
        if foreign or ident and ident not in names:
            continue
        provider = provider_of(key)
        model = mapping.removeprefix(provider).strip("/:")
        part = " with ".join(text for text in (model, names.get(ident, "")) if text) or "all models"
        left_s = round(cooldowns.until(key, now) - now)
        reason = POLICIES[kind].text
        shown.setdefault(provider, []).append(ShownCooldown(part, reason, max(0, left_s)))
    return shown


def list_identities(visitor: Visitor) -> dict[str, list[ShownIdentity]]:
    """Return the workload identities by provider, for operators only. They are those of the process that answers."""
    shown: dict[str, list[ShownIdentity]] = {}
    if visitor.is_operator():
        for provider, source, expires_us, failure in visitor.services.routing.credentials.identities():
            shown.setdefault(provider, []).append(ShownIdentity(source, expires_us, failure))
    return shown
