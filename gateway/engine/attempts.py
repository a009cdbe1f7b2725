"""Walk a plan: which target is next after a failure, and what the caller is told when none is left."""

from collections.abc import Iterator

from msgspec import Struct

from gateway.engine.outcome import Attempt, Outcome
from gateway.errors import (
    GatewayError,
    NoProviderLeft,
    NotSupported,
    UpstreamFailed,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers.protocol import Target

# Faults of one key: the provider's next key may do better. Others are the provider's own.
KEY_FAULTS = (UpstreamRefused, UpstreamRateLimited)
ROTATIONS = 3


class Walk(Struct, eq=False):
    """The targets of a plan in order: `groups` holds one tuple of targets (keys) for each mapping.

    At most `mappings_left` mappings are tried and at most ROTATIONS further keys of each.
    """

    groups: tuple[tuple[Target, ...], ...]
    mappings_left: int
    place: int = 0
    key: int = 0
    rotations: int = 0
    refusals: list[NotSupported] = []

    def first(self) -> Target | None:
        return self.groups[0][0] if self.groups and self.groups[0] else None

    @property
    def is_last(self) -> bool:
        """Whether no other mapping may follow the one that is tried now."""
        return self.mappings_left <= 1 or self.place + 1 >= len(self.groups)

    def after(self, error: GatewayError) -> Target | None:
        """The next target after `error`, None when the request must end."""
        if isinstance(error, NotSupported) and not error.upstream_status:
            self.refusals.append(error)
            return self._next_mapping(spent=0)
        if error.blame != "provider":
            return None
        if isinstance(error, KEY_FAULTS) and self.rotations < ROTATIONS:
            self.rotations += 1
            return self._next_key() or self._next_mapping(spent=1)
        return self._next_mapping(spent=1)

    @property
    def may_skip(self) -> bool:
        """Whether `skip` has a target."""
        more = self.mappings_left > 0 and self.place + 1 < len(self.groups)
        return more or self.key + 1 < len(self.groups[self.place])

    def skip(self) -> Target | None:
        """The next target where nothing may be sent to the one at hand: that counts as no attempt at all."""
        return self._next_key() or self._next_mapping(spent=0)

    def _next_key(self) -> Target | None:
        if self.key + 1 >= len(self.groups[self.place]):
            return None
        self.key += 1
        return self.groups[self.place][self.key]

    def _next_mapping(self, spent: int) -> Target | None:
        self.mappings_left -= spent
        if self.mappings_left <= 0 or self.place + 1 >= len(self.groups):
            return None
        self.place, self.key, self.rotations = self.place + 1, 0, 0
        return self.groups[self.place][0]


def final_error(outcome: Outcome, last: GatewayError, refusals: list[NotSupported]) -> GatewayError:
    """What the caller is told when no target is left: their own fault as it is; else 502, or 504 when the last
    attempt timed out. A provider's refusal of us never looks like the caller's fault, and when a provider wants us
    to come back is nothing for the caller to wait for."""
    attempts = outcome.attempts
    if isinstance(last, NotSupported) and refusals:
        if not attempts:
            return refusals[0]
        last = next((attempt.error for attempt in reversed(attempts) if attempt.error), last)
    last.details = _diagnosed(last, outcome)
    if last.blame != "provider" or isinstance(last, NoProviderLeft):
        last.retry_after = last.retry_after if last.upstream_status == 0 else None
        return last
    if isinstance(last, UpstreamTimeout):
        return UpstreamTimeout(f"The model did not answer in time. {_tried(attempts)}", details=last.details)
    told = f"No provider could answer. {_tried(attempts)}"
    return UpstreamFailed(told, code="all_providers_failed", details=last.details)


def _diagnosed(error: GatewayError, outcome: Outcome) -> dict[str, str] | None:
    """The diagnostics of a provider's answer, with the model as the caller wrote it."""
    if not error.details:
        return error.details
    asked = {"requestedModel": outcome.request.asked, "requestedProvider": outcome.requested_provider or ""}
    return {**error.details, **{name: text for name, text in asked.items() if name in error.details}}


def _tried(attempts: list[Attempt]) -> str:
    """Who was asked and what they said, in the order of asking."""
    return "Tried: " + "; ".join(_told(attempts)) + "." if attempts else ""


def _told(attempts: list[Attempt]) -> Iterator[str]:
    for attempt in attempts:
        error = attempt.error
        if error is None:
            continue
        status = f" answered {error.upstream_status}:" if error.upstream_status else ":"
        yield f"{attempt.target.provider.id}{status} {error.message.rstrip('.')}"
