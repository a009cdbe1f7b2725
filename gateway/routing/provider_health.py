"""Health of mappings and credentials: outcomes of the last hour, and cooldowns after failures."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import Struct

from gateway.callers.credential_sources import OWN_SOURCE, CredentialSource
from gateway.catalogue.entries import Mapping
from gateway.clock import Clock
from gateway.errors import ConnectFailed, ConnectTimeout, GatewayError, UpstreamRateLimited, UpstreamRefused
from gateway.routing.candidates import place_of
from gateway.routing.cooldowns import POLICIES, Cooldowns, Kind, OnCooldown, provider_of
from gateway.routing.refusals import Refusals
from gateway.routing.sliding_window import DEFAULTS, MINUTES, TICK_S, TICKS_PER_MINUTE, Counts, Figures, Tally, Window

# Calls that are silent at the same time: several of them at one mapping mean that it hangs.

SILENT_TOGETHER = 3
# A call that is still silent is noted again within a second or two.
SILENCE_FORGOTTEN_S = 5.0
MAX_KEYS = 1024


class Silences:
    """The calls of one worker that are silent for longer than is usual, by mapping."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[str, dict[str, float]] = {}

    def note(self, key: str, request: str) -> bool:
        """Note that a request's call of a mapping is silent, which is repeated while it is. Return whether several
        are."""
        if key not in self._silent and len(self._silent) >= MAX_KEYS:
            self._silent.clear()
        known = self._known(key)
        known[request] = self._clock.monotonic()
        self._silent[key] = known
        return len(known) >= SILENT_TOGETHER

    def are_several(self, key: str) -> bool:
        """Return whether several calls of a mapping are silent."""
        return len(self._known(key)) >= SILENT_TOGETHER

    def _known(self, key: str) -> dict[str, float]:
        now = self._clock.monotonic()
        return {request: at for request, at in self._silent.get(key, {}).items() if now - at <= SILENCE_FORGOTTEN_S}


VERSION = 2  # version of exported deltas; workers of another release may use another one
MAX_WINDOWS = 8_000
# Consecutive soft failures (5xx, timeouts, truncated streams) that start a cooldown.
CONSECUTIVE_FAILURES = 5
# Connection failures: the location is unreachable, for every model and credential.
UNANSWERED = (ConnectFailed, ConnectTimeout)
NEITHER_FAULT = (UpstreamRefused, UpstreamRateLimited)
# Rejections that concern the whole credential or account; others (403, 404, 405) may concern only this model. 0: the
# gateway could not obtain a token for the credential.
ACCOUNT_STATUSES = (0, 401, 402)
# Rejections that a single request may cause, by a file or a feature that its credential may not use.
PROVOKED_STATUSES = (400, 401, 403, 404, 405)
CREDENTIAL = "#"  # separates the ident in the keys of credentials


class KnownCredential(Protocol):
    """The members of a provider key that routing needs.

    `ident` identifies it without revealing it; `base_url` "" is the usual one; `elsewhere`: its requests are sent to
    another address than those with the platform's keys.
    """

    @property
    def ident(self) -> str: ...
    @property
    def source(self) -> CredentialSource: ...
    @property
    def base_url(self) -> str: ...
    @property
    def elsewhere(self) -> bool: ...


class HealthView(Struct, frozen=True):
    """Uptime in percent, time to the first token and tokens per second; `events` is the number of outcomes.

    `cooldown_until` is in seconds of the monotonic clock, 0.0 if it is available; `cooldown` is the reason of the
    cooldown.
    """

    uptime: float
    latency_ms: float
    throughput: float
    events: int = 0
    cooldown_until: float = 0.0
    cooldown: str = ""


class Pause(Struct, frozen=True):
    """The reason why a mapping or a credential is tried last until `until` (monotonic seconds).

    `unanswered`: the provider accepts no connections; `blocked_until` is when the next request may try it at all, 0.0
    if it may now.
    """

    until: float
    text: str
    unanswered: bool = False
    blocked_until: float = 0.0


class Health:
    """One worker's view of health, fed by its own attempts and by other workers' deltas. Never blocks.

    Keys: a mapping's key; `provider[:region]` for a location; `provider#ident` for a credential; `<mapping key>#ident`
    for a credential with one model; the last two followed by `@organization` if only requests of that organization are
    rejected.
    """

    def __init__(self, clock: Clock, on_cooldown: OnCooldown | None = None) -> None:
        """`on_cooldown` is called when a cooldown begins or ends, as by `Cooldowns`."""
        self._clock = clock
        self._windows: dict[str, Window] = {}
        # Most attempts succeed: each is a few additions here, and is added to its windows only before they are read.
        self._tallies: dict[tuple[str | bool, ...], Tally] = {}
        self._unread: list[Tally] = []
        self._changed: set[str] = set()
        # Empty most of the time: a success then has no cooldown to end.
        self._watched: Counter[str] = Counter()
        self.cooldowns = Cooldowns(clock, self._watched, on_cooldown)
        self.refusals = Refusals(clock, self._watched)
        self.silences = Silences(clock)

    @property
    def windows(self) -> dict[str, Window]:
        """Return all windows by key."""
        if self._unread:
            self._fold()
        return self._windows

    def sample(
        self,
        mapping: Mapping,
        credential: KnownCredential | None,
        *,
        error: GatewayError | None = None,
        ttft_ms: float | None = None,
        tokens: int = 0,
        duration_ms: float = 0.0,
        organization: str = "",
    ) -> None:
        """Record the outcome of one attempt. Errors that are not the provider's fault are not counted.

        `ttft_ms` is the time to the first token of a stream (None otherwise), `tokens` is the output generated within
        `duration_ms`. An organization's own key counts for its provider only if the platform's keys use the same
        address, and a rejection of such a key never counts. `organization` made the request: failures that it may have
        caused count for other organizations only if they had them too.
        """
        if error is None:
            self.count_success(self.tally(mapping, credential), self._clock.monotonic(), tokens, duration_ms, ttft_ms)
        elif error.blame == "provider":
            self._note_failure(mapping, credential, error, organization)
        elif error.upstream_status:
            # The provider accepted the credential and served the model; only this request was invalid.
            for key in dict.fromkeys(_keys_of(mapping, credential)):
                if self.cooldowns.kind(key) != "limited":
                    self._clear(key)

    def tally(self, mapping: Mapping, credential: KnownCredential | None) -> Tally:
        """Return the tally for successes of a mapping with a credential; frequent callers may keep it."""
        key: tuple[str | bool, ...] = mapping.provider, mapping.model, mapping.region
        if credential is not None:
            key = (*key, credential.source, credential.ident, credential.elsewhere)
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= MAX_WINDOWS:
                self._fold()
                self._tallies.clear()
            keys = _window_keys(mapping, credential), _keys_of(mapping, credential)
            tally = self._tallies[key] = Tally(*keys)
        return tally

    def count_success(
        self, tally: Tally, now: float, tokens: int = 0, duration_ms: float = 0.0, ttft_ms: float | None = None
    ) -> None:
        """Record a success that ended `now` (monotonic); the other arguments as in `sample`."""
        if not tally.succeeded or now >= tally.until:
            if tally.succeeded:
                self._fold()
            tally.begin(now)
            self._unread.append(tally)
        tally.succeeded += 1
        if ttft_ms is not None:
            tally.waits += 1
            tally.wait_ms += int(ttft_ms)
        if tokens > 0 and duration_ms > 0:
            tally.tokens += tokens
            tally.token_ms += round(duration_ms)
        if self._watched:
            for key in tally.places:
                self._clear(key)

    def begin(self, mapping: Mapping, credential: KnownCredential | None) -> None:
        """Record the start of an attempt, just before the upstream call, so that only one request probes after a
        cooldown.
        """
        if self.cooldowns.providers:
            for key in _keys_of(mapping, credential):
                self.cooldowns.begin(key)

    def note_silence(self, mapping: Mapping, credential: KnownCredential | None, request: str) -> bool:
        """Record that a request's call is silent for longer than is usual. When several are at once, return True, and
        other requests try the mapping last; at another address than the platform's, only those with the credential."""
        key = _keys_of(mapping, credential)[1]
        if not self.silences.note(key, request):
            return False
        if not self.cooldowns.until(key, self._clock.monotonic()):
            self._trip(key, "failing", None, "")
        return True

    def is_silent(self, mapping: Mapping, credential: KnownCredential | None) -> bool:
        """Return whether several calls of a mapping are silent for longer than is usual, as `note_silence`."""
        return self.silences.are_several(_keys_of(mapping, credential)[1])

    def is_unreachable(self, mapping: Mapping, credential: KnownCredential | None) -> bool:
        """Return whether the provider accepts no connections, and another request tried it a moment ago."""
        now = self._clock.monotonic()
        return any(self.cooldowns.blocked_until(key, now) for key in _keys_of(mapping, credential))

    def view(self, key: str, place: str = "") -> HealthView:
        """Return what is known of a mapping or credential key; `place` adds the cooldowns of its location."""
        now = self._clock.monotonic()
        tick = int(now // TICK_S)
        figures = self.figures(key, tick)
        window = self.windows.get(key)
        until, why = max((self.cooldowns.until(name, now), name) for name in (key, place or key))
        text = POLICIES[self.cooldowns.kind(why)].text if until else ""
        return HealthView(*figures, window.events if window else 0, until, text)

    def figures(self, key: str, tick: int) -> Figures:
        """Return uptime, latency and throughput at `tick` (see `tick`), without the cooldowns."""
        window = self.windows.get(key)
        if window is None:
            return DEFAULTS
        return window.figures(tick)

    def own_uptime(self, key: str, tick: int) -> tuple[float, int, int]:
        """Return the uptime in percent, counting only the provider's own faults, and the numbers of outcomes and of
        faults."""
        window = self.windows.get(key)
        if window is None:
            return (DEFAULTS[0], 0, 0)
        return window.own_uptime(tick)

    def tick(self) -> tuple[float, int]:
        """Return the current time: monotonic seconds and the tick that `figures` takes."""
        now = self._clock.monotonic()
        return now, int(now // TICK_S)

    def cooldown_of(self, mapping_key: str, place: str, now: float) -> Pause | None:
        """Return why a mapping as a whole is tried last, or None."""
        return self._pause((mapping_key, place), now)

    def credential_cooldown(
        self, mapping_key: str, provider: str, credential: KnownCredential, now: float, organization: str = ""
    ) -> Pause | None:
        """Return why a credential is tried last for requests of `organization`, or None."""
        keys: tuple[str, ...] = _credential_keys(mapping_key, provider, credential)
        if organization and self.refusals:
            keys = (*keys, *(_own_key(key, organization) for key in keys))
        return self._pause(keys, now)

    def export(self) -> dict[str, Any]:
        """Return this worker's changes since the last export, as JSON-able data for `merge` in other workers."""
        _, tick = self.tick()
        minute = tick // TICKS_PER_MINUTE
        windows = self.windows
        changed = self._changed
        self._changed = set()
        rows = [
            [key, ago, counts.listed()]
            for key in changed
            if key in windows
            for ago, counts in windows[key].take_fresh(minute)
        ]
        return {"form": VERSION, "windows": rows, "rests": self.cooldowns.export(), "refusals": self.refusals.export()}

    def merge(self, delta: dict[str, Any], age_s: float = 0.0) -> None:
        """Merge another worker's export, made `age_s` seconds ago. A delta of another version is ignored."""
        if delta.get("form") != VERSION:
            return
        _, tick = self.tick()
        minute = tick // TICKS_PER_MINUTE
        late = int(max(0.0, age_s) // 60)
        for key, ago, counts in delta["windows"]:
            if ago + late <= MINUTES:
                self._window(key).absorb(minute - ago - late, Counts(*counts), tick)
        for key, left_s, strikes, kind, again_s in delta["rests"]:
            self.cooldowns.absorb(key, left_s - max(0.0, age_s), strikes, kind, again_s - max(0.0, age_s))
        for row in delta["refusals"]:
            self.refusals.absorb(*row)

    def _fold(self) -> None:
        unread = self._unread
        self._unread = []
        for tally in unread:
            self._add(tally.keys, tally.tick, tally.take())

    def _count(self, mapping: Mapping, credential: KnownCredential | None, counts: Counts) -> None:
        # Earlier successes are counted first: the consecutive failures begin after them.
        self._fold()
        _, tick = self.tick()
        self._add(_window_keys(mapping, credential), tick, counts)

    def _add(self, keys: tuple[str, ...], tick: int, counts: Counts) -> None:
        for key in keys:
            self._window(key).add(tick, counts)
        self._changed.update(keys)

    def _window(self, key: str) -> Window:
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= MAX_WINDOWS:
                self._shrink()
            window = self._windows[key] = Window()
        return window

    def _shrink(self) -> None:
        # Drop a tenth at once, so that a full table is not sorted for every new key. Credentials are dropped before
        # mappings, because callers can bring any number of them.
        ages = sorted(("#" not in key, window.touched, key) for key, window in self._windows.items())
        for _, _, key in ages[: MAX_WINDOWS // 10]:
            del self._windows[key]

    def _note_failure(
        self, mapping: Mapping, credential: KnownCredential | None, error: GatewayError, organization: str
    ) -> None:
        place, whole, *narrow = _keys_of(mapping, credential)
        pair, account = narrow or (whole, whole)
        owner = organization if _is_own(credential) else ""
        if error.upstream_status and self.cooldowns:
            self.cooldowns.clear(place)  # the provider responded
        if isinstance(error, UpstreamRefused):
            key = account if error.upstream_status in ACCOUNT_STATUSES else pair
            if self._concerns_all(key, error, organization):
                self._count_failure(mapping, credential, error)
                self._trip(key, "refused", None, owner)
            return
        self._count_failure(mapping, credential, error)
        if isinstance(error, UNANSWERED):
            self._trip(place, "unreachable", error.retry_after, owner)
        elif isinstance(error, UpstreamRateLimited):
            self._trip(pair, "limited", error.retry_after, owner)
        elif self._fails_often(mapping, credential) or error.retry_after:
            self._trip(whole, "failing", error.retry_after, owner)

    def _trip(self, key: str, kind: Kind, retry_after_s: float | None, owner: str) -> None:
        # Only credentials belong to an organization; everything else concerns all callers.
        self.cooldowns.trip(key, kind, retry_after_s, owner if CREDENTIAL in key else "")

    def _concerns_all(self, key: str, error: GatewayError, organization: str) -> bool:
        """Return whether a rejection concerns more than one caller's requests.

        A caller with repeatedly rejected requests gets its own cooldown.
        """
        if error.upstream_status not in PROVOKED_STATUSES or not organization:
            return True
        self.refusals.note(key, organization)
        if self.refusals.met_by_several(key):
            return True
        if self.refusals.met_again(key, organization):
            self.cooldowns.trip(_own_key(key, organization), "refused", None, organization)
        return False

    def _count_failure(self, mapping: Mapping, credential: KnownCredential | None, error: GatewayError) -> None:
        neither = isinstance(error, NEITHER_FAULT)
        if not (neither and _is_own(credential)):
            self._count(mapping, credential, Counts(failed=1, faults=int(not neither)))

    def _clear(self, key: str) -> None:
        self.cooldowns.clear(key)
        if self.refusals:
            for organization in self.refusals.clear(key):
                self.cooldowns.clear(_own_key(key, organization))

    def _fails_often(self, mapping: Mapping, credential: KnownCredential | None) -> bool:
        # The first window is that of the model at the address that was used.
        window = self.windows.get(_window_keys(mapping, credential)[0])
        return window is not None and window.streak >= CONSECUTIVE_FAILURES

    def _pause(self, keys: Iterable[str], now: float) -> Pause | None:
        cooldowns = self.cooldowns
        until, why = max((cooldowns.until(key, now), key) for key in keys)
        if not until:
            return None
        policy = POLICIES[cooldowns.kind(why)]
        return Pause(until, policy.text, policy.shut, max(cooldowns.blocked_until(key, now) for key in keys))


def _is_own(credential: KnownCredential | None) -> bool:
    return credential is not None and credential.source == OWN_SOURCE


def _window_keys(mapping: Mapping, credential: KnownCredential | None) -> tuple[str, ...]:
    """Return the keys of the windows that count an attempt: its mapping's and its credential's.

    At another address than the platform's it is only that of the credential with this model, which no score reads.
    """
    if credential is None or not credential.ident:
        return (mapping.key,)
    if credential.elsewhere:
        return (f"{mapping.key}#{credential.ident}",)
    return mapping.key, f"{mapping.provider}#{credential.ident}"


def _keys_of(mapping: Mapping, credential: KnownCredential | None) -> tuple[str, ...]:
    """Return the keys of location, mapping, credential with this model, and credential.

    At another address than the platform's all of them belong to the credential.
    """
    key = mapping.key
    if credential is None or not credential.ident:
        return place_of(mapping), key
    pair, account = _credential_keys(key, mapping.provider, credential)
    if credential.elsewhere:
        return account, pair, pair, account
    return place_of(mapping), key, pair, account


def _credential_keys(mapping_key: str, provider: str, credential: KnownCredential) -> tuple[str, str]:
    return f"{mapping_key}#{credential.ident}", f"{provider}#{credential.ident}"


def _own_key(key: str, organization: str) -> str:
    """Return the key of a cooldown that applies to one organization only."""
    return f"{key}@{organization}"


# The last hour of each provider, minute by minute.


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
