"""The outcome of a request: its attempts, the usage and cost of each, and the trail shown to the caller."""

from msgspec import Struct, field

from gateway.catalogue.prices import Charge
from gateway.errors import (
    GatewayError,
    StreamTruncated,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.limits.rate_limits import RateLimitStatus
from gateway.neutral.request import Request
from gateway.neutral.sound_length import SoundLength
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Target

PAYMENT_REQUIRED = 402
LONGEST_TEXT = 500  # characters of a provider's error text that are kept
TRAIL = "trail"  # what a target keeps of its entries


class Attempt(Struct, eq=False):
    """One upstream call. Times are monotonic seconds, `at_us` the wall clock at its start.

    `usage` None: the upstream told none (yet); `finish` a FinishReason, "error", "client_disconnect" or
    "interrupted"; `output_length` the size of the answer's text so far, for an estimate (of sound, the size of a text
    with as many tokens); `overrun`: the true cost passed the reservation; `capped`: counts or cost were more than any
    can be, and were cut to that.
    `charge`, and `usage` where it was missing, are set by the settlement.
    """

    number: int
    target: Target
    at_us: int
    started: float
    first_at: float = 0.0
    ended: float = 0.0
    status: int = 0
    error: GatewayError | None = None
    usage: Usage | None = None
    charge: Charge = field(default_factory=Charge)
    finish: str = ""
    output_length: int = 0
    sound: SoundLength | None = None  # of an answer that is a file
    model: str = ""  # what the upstream says answered
    upstream_id: str = ""
    service_tier: str = ""
    overrun: bool = False
    capped: bool = False

    @property
    def duration_ms(self) -> int:
        return max(0, round((self.ended - self.started) * 1000))

    @property
    def ttft_ms(self) -> int:
        """Time to the first content, 0 when none came."""
        if self.first_at:
            return max(0, round((self.first_at - self.started) * 1000))
        return 0

    @property
    def succeeded(self) -> bool:
        return self.error is None and self.finish not in ("", "error", "client_disconnect", "interrupted")


class Outcome(Struct, eq=False):
    """All attempts of a request, the serving one last. `requested_provider` None: the caller named none.

    `healing` names the strategies by which the answer's text was made JSON. Of a `cached` answer `origin` is the id of
    the request that it was made for; its one attempt names who served that and stands for no call. `rate_limits` tell
    where the caller stands with its rate limits.
    """

    request: Request
    requested_provider: str | None = None
    attempts: list[Attempt] = []
    warnings: list[str] = []
    cached: bool = False
    healing: tuple[str, ...] = ()
    origin: str = ""
    rate_limits: tuple[RateLimitStatus, ...] = ()

    @property
    def serving(self) -> Attempt:
        return self.attempts[-1]

    def trail(self) -> list[dict]:
        """`metadata.routing`: one entry an attempt (HTTP reference, section 2.2)."""
        if self.cached:
            return []
        return list(map(trail_entry, self.attempts))


def trail_entry(attempt: Attempt) -> dict:
    target = attempt.target
    error = attempt.error
    entry = target.memo.get(TRAIL)
    if entry is None:
        entry = target.memo[TRAIL] = _successful_attempt(target)
    entry = entry.copy()
    entry["status_code"] = attempt.status
    if error is not None:
        entry["error_type"] = error_type(error)
        entry["succeeded"] = False
    return entry


def _successful_attempt(target: Target) -> dict:
    """The entry of an attempt at `target` that went well, but for its status."""
    mapping = target.mapping
    credential = target.credential
    entry = {
        "provider": target.provider.id,
        "model": mapping.model,
        "status_code": 0,
        "error_type": "none",
        "succeeded": True,
        "credentialSource": credential.source,
    }
    if mapping.region:
        entry["region"] = mapping.region
    if credential.source == "byok":
        entry["providerKeyId"] = credential.ident
        entry["providerKeyLabel"] = credential.label
    elif credential.ident:
        entry["apiKeyHash"] = credential.ident
    return entry


def upstream_text(error: GatewayError) -> str:
    """The provider's own words about a failure, on one line and capped; "" where it gave none. Scrubbed of keys."""
    text = error.upstream_text or (error.details or {}).get("responseText", "")
    if not text and error.upstream_status and error.blame == "caller":
        text = error.message
    text = " ".join(text.replace("\0", "").split())
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}…"


def error_type(error: GatewayError | None) -> str:
    """The name of a failed attempt's error in the list of attempts."""
    if error is None:
        return "none"
    if isinstance(error, UpstreamUnreachable | UpstreamTimeout | StreamTruncated):
        return "network_error"
    if isinstance(error, UpstreamRateLimited):
        return "rate_limited"
    if error.upstream_status == PAYMENT_REQUIRED:
        return "insufficient_credits"
    if isinstance(error, UpstreamRefused):
        return "upstream_error"
    if isinstance(error, UpstreamFailed):
        failed = isinstance(error, UpstreamOverloaded) or error.upstream_status >= 500
        if failed:
            return "server_error"
        return "upstream_error"
    return "client_error"
