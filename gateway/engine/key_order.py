"""The order of a provider's keys: they take turns, and keys in cooldown come last."""

from operator import itemgetter

from gateway.accounts.credential_sources import OWN_SOURCE
from gateway.providers.protocol import Credential, Target
from gateway.routing.decision import Plan


def cooling_last(groups: tuple[tuple[Target, ...], ...], plan: Plan) -> tuple[tuple[Target, ...], ...]:
    """Move keys in cooldown behind all other targets when their provider has other keys."""
    ready = []
    late = []
    for group, scored in zip(groups, plan.order, strict=True):
        cooling = plan.cooling.get(scored.key)
        if cooling and not cooling.whole:
            size = len(cooling.credentials)
        else:
            size = 0
        ready.append(group[: len(group) - size])
        if cooling and size:
            late.append((cooling.until, group[-size:]))
    late.sort(key=itemgetter(0))
    return (*ready, *(group for _, group in late))


def rotate(credentials: tuple[Credential, ...], turn: int) -> tuple[Credential, ...]:
    """Return the keys beginning with the one at `turn`; an organization's own keys stay before the platform's."""
    own_keys = tuple(credential for credential in credentials if credential.source == OWN_SOURCE)
    platform_keys = credentials[len(own_keys) :] if own_keys else credentials
    return _turned(own_keys, turn) + _turned(platform_keys, turn)


def _turned(keys: tuple[Credential, ...], turn: int) -> tuple[Credential, ...]:
    start = turn % len(keys) if keys else 0
    return keys[start:] + keys[:start]
