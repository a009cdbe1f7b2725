"""The retry decision: the next target of a plan after a failure, and the error when none is left."""

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from gateway.billing.outcome import Attempt, Outcome
from gateway.errors import (
    ATTEMPTS,
    GatewayError,
    NoProviderLeft,
    NotSupported,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers.credentials import BYOK
from gateway.providers.protocol import Target

# Errors of one key: the provider's next key may work. Other errors concern the provider as a whole.
KEY_FAULTS = (UpstreamRefused, UpstreamRateLimited)
ROTATIONS = 3
# When all attempts failed with one of these errors, so does the request: clients know what to do about each.
ALIKE = (UpstreamRateLimited, UpstreamOverloaded, UpstreamTimeout)
WAIT_S = 1.0  # when no provider sent Retry-After


class Walk(Struct, eq=False):
    """Walks the targets of a plan in order: `groups` holds one tuple of targets (keys) for each mapping.

    At most `most` mappings of a model are tried, and at most ROTATIONS further keys of each. `refusals` are from
    targets that cannot carry the request; `gave_up`: a target was left because it was silent for too long.
    """

    groups: tuple[tuple[Target, ...], ...]
    most: int
    spent: int = 0
    place: int = 0
    key: int = 0
    rotations: int = 0
    refusals: list[NotSupported] = []
    gave_up: bool = False

    def first(self) -> Target:
        """The first target; every plan has one."""
        return self.groups[0][0]

    @property
    def is_last(self) -> bool:
        """Whether no other mapping can follow the one that is being tried."""
        return self.place + 1 >= len(self.groups) or self._after(self.spent + 1) is None

    def after(self, error: GatewayError) -> Target | None:
        """The next target after `error`, None when the request must fail."""
        if isinstance(error, NotSupported) and not error.upstream_status:
            self.refusals.append(error)
            return self._next_mapping(spent=0)
        if error.blame != "provider":
            return None
        if isinstance(error, KEY_FAULTS) and self.rotations < ROTATIONS:
            self.rotations += 1
            return self._next_key() or self._next_mapping(spent=1)
        return self._next_payer(error) or self._next_mapping(spent=1)

    def following(self) -> Target | None:
        """The target that would follow at another mapping."""
        place = self._after(self.spent + 1)
        if place is None:
            return None
        return self.groups[place][0]

    def give_up(self) -> None:
        """Move the current target behind all others: it may only be slow."""
        self.gave_up = True
        self.groups = (*self.groups, self.groups[self.place][self.key :][:1])

    @property
    def may_skip(self) -> bool:
        """Whether `skip` would return a target."""
        return self._after(self.spent) is not None or self.key + 1 < len(self.groups[self.place])

    def skip(self) -> Target | None:
        """The next target, when nothing may be sent to the current one; this does not count as an attempt."""
        return self._next_key() or self._next_mapping(spent=0)

    def _next_key(self) -> Target | None:
        if self.key + 1 >= len(self.groups[self.place]):
            return None
        self.key += 1
        return self.groups[self.place][self.key]

    def _next_payer(self, error: GatewayError) -> Target | None:
        """The platform's key after the organization's own failed: after key errors once all own keys were tried, and
        after any error when the own key is used at another address."""
        group = self.groups[self.place]
        credential = group[self.key].credential
        if credential.source != BYOK or not (isinstance(error, KEY_FAULTS) or credential.elsewhere):
            return None
        for key in range(self.key + 1, len(group)):
            if group[key].credential.source != BYOK:
                self.key = key
                self.rotations = 0
                return group[key]
        return None

    def _next_mapping(self, spent: int) -> Target | None:
        self.spent += spent
        place = self._after(self.spent)
        if place is None:
            return None
        if self._model(place) != self._model(self.place):
            self.spent = 0
        self.place = place
        self.key = 0
        self.rotations = 0
        return self.groups[place][0]

    def _after(self, spent: int) -> int | None:
        """The position of the mapping that follows after `spent` tries: of the same model, or of the next."""
        place = self.place + 1
        if spent < self.most:
            if place < len(self.groups):
                return place
            return None
        model = self._model(self.place)
        return next((one for one in range(place, len(self.groups)) if self._model(one) != model), None)

    def _model(self, place: int) -> str:
        return self.groups[place][0].mapping.model


def final_error(outcome: Outcome, last: GatewayError, refusals: list[NotSupported]) -> GatewayError:
    """The error for the caller when no target is left, with the number of attempts."""
    error = _final_error(outcome, last, refusals)
    error.headers = (*error.headers, (ATTEMPTS, str(len(outcome.attempts))))
    return error


def _final_error(outcome: Outcome, last: GatewayError, refusals: list[NotSupported]) -> GatewayError:
    """The caller's own error unchanged; otherwise the error that all attempts share, as a caller of the provider itself
    would see it; otherwise 502. A provider's refusal of our credential never looks like the caller's fault."""
    attempts = outcome.attempts
    if isinstance(last, NotSupported) and refusals:
        if not attempts:
            return refusals[0]
        last = next((attempt.error for attempt in reversed(attempts) if attempt.error), last)
    last.details = _diagnosed(last, outcome)
    if last.blame != "provider" or isinstance(last, NoProviderLeft):
        if last.upstream_status == 0:
            last.retry_after = last.retry_after
        else:
            last.retry_after = None
        return last
    message = f"No provider could answer. {_tried(attempts)}"
    errors = [attempt.error for attempt in attempts if attempt.error is not None]
    alike = next((kind for kind in ALIKE if errors and all(isinstance(error, kind) for error in errors)), None)
    if alike is UpstreamTimeout:
        return UpstreamTimeout(f"The model did not answer in time. {_tried(attempts)}", details=last.details)
    if alike is not None:
        waits = [error.retry_after for error in errors if error.retry_after is not None]
        return alike(message, details=last.details, retry_after=min(waits, default=WAIT_S))
    return UpstreamFailed(message, code="all_providers_failed", details=last.details)


def _diagnosed(error: GatewayError, outcome: Outcome) -> dict[str, str] | None:
    """The diagnostics of a provider's response, with the model as the caller wrote it."""
    if not error.details:
        return error.details
    details = {"requestedModel": outcome.request.requested_model, "requestedProvider": outcome.requested_provider or ""}
    return {**error.details, **{name: text for name, text in details.items() if name in error.details}}


def _tried(attempts: list[Attempt]) -> str:
    """Which providers were tried and how they answered, in order; what was said several times once, with how often."""
    said = Counter(_described(attempts))
    told = [text if times == 1 else f"{text} ({times} times)" for text, times in said.items()]
    if attempts:
        return "Tried: " + "; ".join(told) + "."
    return ""


def _described(attempts: list[Attempt]) -> Iterator[str]:
    for attempt in attempts:
        error = attempt.error
        if error is None:
            continue
        if error.upstream_status:
            status = f" answered {error.upstream_status}:"
        else:
            status = ":"
        yield f"{attempt.target.provider.id}{status} {error.message.rstrip('.')}"
