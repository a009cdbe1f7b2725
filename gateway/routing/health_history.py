"""The last hour of each provider, minute by minute."""

from gateway.routing.cooldowns import provider_of
from gateway.routing.provider_health import CREDENTIAL, Health
from gateway.routing.sliding_window import MINUTES, TICKS_PER_MINUTE, Counts


def read_history(health: Health) -> dict[str, list[Counts]]:
    """Return the counts of each provider for each of the last MINUTES minutes, oldest first. Calls to another address
    than the provider's are left out."""
    _, tick = health.tick()
    newest = tick // TICKS_PER_MINUTE
    history: dict[str, list[Counts]] = {}
    for key, window in health.windows.items():
        if CREDENTIAL in key:
            continue
        sums = history.setdefault(provider_of(key), [Counts() for _ in range(MINUTES)])
        for back, total in enumerate(reversed(sums)):
            counts = window.counts_of(newest - back)
            if counts is not None:
                total.add(counts)
    return history
