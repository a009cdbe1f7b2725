"""The retry decision: the next target of a plan after a failure, and the error when none is left."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from msgspec import Struct

from gateway.billing.context import Attempt, Outcome
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.errors import (
    ATTEMPTS,
    GatewayError,
    NoProviderLeft,
    NotSupported,
    SealedElsewhere,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers.protocol import Target

# Codes of encrypted parts that the account cannot decrypt.
UNREADABLE = ("invalid_encrypted_content",)
TOO_LONG = "context_length_exceeded"  # the code of a prompt that exceeds a model's context
# Errors that concern one key: another key of the provider may work. Other errors concern the whole provider.
KEY_FAULTS = (UpstreamRefused, UpstreamRateLimited)
ROTATIONS = 3
# When every attempt failed with the same one of these errors, the caller gets that error, which clients can handle.
SHARED_FAILURES = (UpstreamRateLimited, UpstreamOverloaded, UpstreamTimeout)
DEFAULT_RETRY_AFTER_S = 1.0  # when no provider sent Retry-After


class Walk(Struct, eq=False):
    """The position in a plan: which targets were tried and which one is next.

    `groups` holds one tuple of targets (keys) for each mapping. At most `maximum` mappings of a model are tried, and at
    most ROTATIONS further keys of each. `refusals` are the errors of targets that cannot carry the request. `gave_up`:
    a target was skipped because it was silent for too long. `aside` are the keys of the mapping that is tried beside
    the current one.
    """

    groups: tuple[tuple[Target, ...], ...]
    maximum: int
    spent: int = 0
    place: int = 0
    key: int = 0
    rotations: int = 0
    refusals: list[NotSupported] = []
    gave_up: bool = False
    aside: tuple[Target, ...] = ()

    def first(self) -> Target:
        """Return the first target; every plan has one."""
        return self.groups[0][0]

    @property
    def is_last(self) -> bool:
        """Whether no mapping can follow the current one."""
        return self.place + 1 >= len(self.groups) or self._after(self.spent + 1) is None

    def after(self, error: GatewayError) -> Target | None:
        """Return the next target after `error`, or None when the request must fail."""
        if isinstance(error, NotSupported) and not error.upstream_status:
            self.refusals.append(error)
            if isinstance(error, SealedElsewhere):
                self.groups = (*self.groups, (replace(self._current, unseals=False),))
            return self._next_mapping(spent=0)
        if error.code in UNREADABLE and self._current.unseals:
            return self._without_seals()
        if error.code == TOO_LONG:
            return self._next_longer()
        if error.blame != "provider":
            return None
        if isinstance(error, KEY_FAULTS) and self.rotations < ROTATIONS:
            self.rotations += 1
            return self._next_key() or self._next_mapping(spent=1)
        return self._next_payer(error) or self._next_mapping(spent=1)

    def following(self) -> Target | None:
        """Return the target that would follow at another mapping, or None."""
        place = self._after(self.spent + 1)
        if place is None:
            return None
        return self.groups[place][0]

    def beside(self) -> Target | None:
        """Return the target that would follow, to be tried beside the current one; None where none of the same model
        follows."""
        place = self._after(self.spent + 1)
        if place is None or self._model(place) != self._model(self.place):
            return None
        return self.groups[place][0]

    def take_beside(self) -> None:
        """Set the mapping of `beside` aside, because it is tried now."""
        place = self._after(self.spent + 1)
        if place is None:
            return
        self.aside = self.groups[place]
        self.groups = (*self.groups[:place], *self.groups[place + 1 :])
        self.spent += 1
        self.gave_up = True  # no call is abandoned any more: the other provider has the request already

    def lose_current(self, error: GatewayError) -> None:
        """Note that the current target failed while the one aside is in progress. Its further keys are tried after
        that one if only its key was at fault."""
        if isinstance(error, KEY_FAULTS):
            self._insert(self.groups[self.place][self.key + 1 :])

    def lose_aside(self, error: GatewayError) -> None:
        """Note that the target aside failed while the current one is in progress, as `lose_current`."""
        if isinstance(error, KEY_FAULTS):
            self._insert(self.aside[1:])
        self.aside = ()

    def go_aside(self) -> None:
        """Make the target aside the current one, because it is the last one in progress: its error decides what
        follows."""
        self._insert(self.aside)
        self.aside = ()
        self.place += 1
        self.key = 0
        self.rotations = 0

    def _insert(self, keys: tuple[Target, ...]) -> None:
        """Let keys of a mapping follow the current one."""
        if keys:
            self.groups = (*self.groups[: self.place + 1], keys, *self.groups[self.place + 1 :])

    def move_to_end(self) -> None:
        """Move the current target behind all others, because it may only be slow."""
        self.gave_up = True
        self.groups = (*self.groups, self.groups[self.place][self.key :][:1])

    @property
    def may_skip(self) -> bool:
        """Whether `skip` would return a target."""
        return self._after(self.spent) is not None or self.key + 1 < len(self.groups[self.place])

    def skip(self) -> Target | None:
        """Return the next target without counting an attempt, when nothing may be sent to the current one."""
        return self._next_key() or self._next_mapping(spent=0)

    @property
    def _current(self) -> Target:
        return self.groups[self.place][self.key]

    def _without_seals(self) -> Target:
        """Return the current target for an attempt without what its account cannot decrypt, such as reasoning from
        before its key was replaced."""
        keys = list(self.groups[self.place])
        keys[self.key] = replace(keys[self.key], unseals=False)
        self.groups = (*self.groups[: self.place], tuple(keys), *self.groups[self.place + 1 :])
        return keys[self.key]

    def _next_key(self) -> Target | None:
        if self.key + 1 >= len(self.groups[self.place]):
            return None
        self.key += 1
        return self.groups[self.place][self.key]

    def _next_payer(self, error: GatewayError) -> Target | None:
        """Return the platform's key after the organization's own key failed: for an error of the key once all own keys
        were tried, and for any error when the own key is used at a custom address."""
        group = self.groups[self.place]
        credential = group[self.key].credential
        if credential.source != OWN_SOURCE or not (isinstance(error, KEY_FAULTS) or credential.elsewhere):
            return None
        for key in range(self.key + 1, len(group)):
            if group[key].credential.source != OWN_SOURCE:
                self.key = key
                self.rotations = 0
                return group[key]
        return None

    def _next_longer(self) -> Target | None:
        """Return the next target that may hold a prompt that was too long for the current one: of another model of
        the request, or of the same model at a provider with a longer context."""
        known = self.groups[self.place][self.key].mapping.context_length
        for place in range(self.place + 1, len(self.groups)):
            other = self.groups[place][0].mapping.context_length
            further = self._model(place) != self._model(self.place)
            # Models count tokens differently, so that one with an equal context may hold the prompt.
            if other > known or (further and (other == known or not (other and known))):
                self.spent = 0 if further else self.spent + 1
                self.place = place
                self.key = 0
                self.rotations = 0
                return self.groups[place][0]
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
        """Return the position of the mapping after `spent` tries, of the same model or the next; None without one."""
        place = self.place + 1
        if spent < self.maximum:
            if place < len(self.groups):
                return place
            return None
        model = self._model(self.place)
        return next((other for other in range(place, len(self.groups)) if self._model(other) != model), None)

    def _model(self, place: int) -> str:
        return self.groups[place][0].mapping.model


def final_error(outcome: Outcome, last: GatewayError, refusals: list[NotSupported]) -> GatewayError:
    """Return the error for the caller when no target is left, with the number of attempts in a header."""
    error = _final_error(outcome, last, refusals)
    error.headers = (*error.headers, (ATTEMPTS, str(len(outcome.attempts))))
    return error


def _final_error(outcome: Outcome, last: GatewayError, refusals: list[NotSupported]) -> GatewayError:
    """Return the caller's own error unchanged, else the error that all attempts share, else 502.

    An error of our credential at the provider is never reported as the caller's fault.
    """
    attempts = outcome.attempts
    if isinstance(last, NotSupported) and refusals:
        if not attempts:
            return refusals[0]
        last = next((attempt.error for attempt in reversed(attempts) if attempt.error), last)
    last.details = _diagnosed(last, outcome)
    if last.blame != "provider" or isinstance(last, NoProviderLeft):
        if last.upstream_status:
            last.retry_after = None
        return last
    message = f"No provider could answer. {_tried(attempts)}"
    errors = [attempt.error for attempt in attempts if attempt.error is not None]
    shared_kind = next(
        (kind for kind in SHARED_FAILURES if errors and all(isinstance(error, kind) for error in errors)), None
    )
    if shared_kind is UpstreamTimeout:
        return UpstreamTimeout(f"The model did not answer in time. {_tried(attempts)}", details=last.details)
    if shared_kind is not None:
        waits = [error.retry_after for error in errors if error.retry_after is not None]
        return shared_kind(message, details=last.details, retry_after=min(waits, default=DEFAULT_RETRY_AFTER_S))
    return UpstreamFailed(message, code="all_providers_failed", details=last.details)


def _diagnosed(error: GatewayError, outcome: Outcome) -> dict[str, str] | None:
    """Return the diagnostics of a provider's response, with the model as the caller wrote it."""
    if not error.details:
        return error.details
    details = {"requestedModel": outcome.request.requested_model, "requestedProvider": outcome.requested_provider or ""}
    return {**error.details, **{name: text for name, text in details.items() if name in error.details}}


def _tried(attempts: list[Attempt]) -> str:
    """Return the providers that were tried and their errors, in order; equal texts appear once with their count."""
    if not attempts:
        return ""
    counts = Counter(_described(attempts))
    texts = [text if times == 1 else f"{text} ({times} times)" for text, times in counts.items()]
    return "Tried: " + "; ".join(texts) + "."


def _described(attempts: list[Attempt]) -> Iterator[str]:
    for attempt in attempts:
        error = attempt.error
        if error is None:
            continue
        status = f" answered {error.upstream_status}:" if error.upstream_status else ":"
        yield f"{attempt.target.provider.id}{status} {error.message.rstrip('.')}"
