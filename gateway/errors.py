"""The one error tree.

GatewayError
├── caller's fault: InvalidRequest (400) ─ ContentRefused, UnknownModel, NotSupported, RequestTooLarge (413),
│   │               UnsupportedMediaType (415), IdempotencyKeyReused (422)
│   ├── Unauthenticated (401), Forbidden (403), NotFound (404), Conflict (409), Gone (410)
│   ├── SpendingLimitReached (402), OutOfCredits (402)
│   └── RateLimited (429)
├── provider's fault: UpstreamFailed (502) ─ UpstreamUnreachable ─ ConnectFailed,
│   │                 UpstreamTimeout (504) ─ ConnectTimeout,
│   │                 UpstreamRateLimited (429), UpstreamOverloaded (529), StreamTruncated,
│   │                 UpstreamRefused (credential, funding, unknown there)
│   └── NoProviderLeft (503)
├── Cancelled (499): the caller hung up
└── gateway's fault: Unavailable (503), Internal (500), Interrupted (500)

`kind` is what a dialect maps to its own words; `code` is the stable name listed in docs/errors.md; `blame` alone
decides whether another provider is tried. Statuses follow the HTTP reference of the product.
"""

from typing import Any

# The header of answers and errors alike that tells how many upstream calls were made.
ATTEMPTS = "x-llmgateway-attempts"


# Characters of a message that are shown: what a caller sent is repeated by its beginning only, and how the text ends,
# which tells what to do, stays.
LONGEST_MESSAGE, SHOWN_START, SHOWN_END = 2_000, 1_400, 400
LONGEST_PARAM = 255


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:SHOWN_START]} … {text[-SHOWN_END:]}"


class GatewayError(Exception):
    """An error that a caller may see. `message` says what to do and never holds a secret.

    `param` names the offending field ("" when none), `retry_after` is seconds, `status` and `code` may be
    narrowed per instance, `details` are extra members of the error object (strings), `upstream_status` the
    status that the provider answered (0 when it answered none), `headers` are added to the answer.

    `upstream_text` is the provider's own error text, scrubbed, for operators and logs; callers see `message`.
    `spent` is what the provider counted before it failed (a neutral Usage), to be metered; None when it told none.
    `whose` tells operators whose request it was where nobody was let in (key, project, organization, member); it is
    logged and never sent.
    """

    kind = "internal"
    status = 500
    code = "internal_error"
    blame = "gateway"
    upstream_text: str = ""
    spent: object | None = None
    whose: "tuple[str, str, str, str] | None" = None

    def __init__(
        self,
        message: str,
        *,
        param: str = "",
        code: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        details: dict[str, str] | None = None,
        upstream_status: int = 0,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        message = _cut(message)
        super().__init__(message)
        self.message = message
        self.param = param if len(param) <= LONGEST_PARAM else f"{param[:LONGEST_PARAM]}…"
        self.retry_after = retry_after
        self.details = details
        self.upstream_status = upstream_status
        self.headers = headers
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status


class InvalidRequest(GatewayError):
    kind, status, code, blame = "invalid_request", 400, "invalid_parameters", "caller"


class ContentRefused(InvalidRequest):
    kind, code = "content_refused", "content_policy_violation"


class UnknownModel(InvalidRequest):
    code = "model_not_found"


class NotSupported(InvalidRequest):
    """The model or every provider of it lacks what the request needs."""

    code = "model_not_supported"


class ContentNeeded(NotSupported):
    """The target loads no URLs: it can be used once the content has been fetched."""


class RequestTooLarge(InvalidRequest):
    kind, status, code = "too_large", 413, "request_too_large"


class UnsupportedMediaType(InvalidRequest):
    kind, status, code = "unsupported_media_type", 415, "unsupported_media_type"


class RangeNotSatisfiable(InvalidRequest):
    kind, status, code = "range_not_satisfiable", 416, "range_not_satisfiable"


class IdempotencyKeyReused(InvalidRequest):
    """The same Idempotency-Key came with another request."""

    status, code = 422, "idempotency_key_reused"


class Unauthenticated(GatewayError):
    kind, status, code, blame = "unauthenticated", 401, "invalid_api_key", "caller"


class Forbidden(GatewayError):
    kind, status, code, blame = "forbidden", 403, "permission_denied", "caller"


class NotFound(GatewayError):
    kind, status, code, blame = "not_found", 404, "not_found", "caller"


class MethodNotAllowed(GatewayError):
    kind, status, code, blame = "method_not_allowed", 405, "method_not_allowed", "caller"


class Conflict(GatewayError):
    kind, status, code, blame = "conflict", 409, "conflict", "caller"


class IdempotencyInFlight(Conflict):
    """The first request under the same Idempotency-Key is not answered yet."""

    code = "idempotency_in_flight"


class Gone(GatewayError):
    kind, status, code, blame = "gone", 410, "gone", "caller"


class SpendingLimitReached(GatewayError):
    kind, status, code, blame = "limit_reached", 402, "key_limit_reached", "caller"


class OutOfCredits(GatewayError):
    kind, status, code, blame = "out_of_credits", 402, "insufficient_credits", "caller"


class RateLimited(GatewayError):
    """`standings` are those of the limits that refused (limits.rates.RateLimitStatus), for formats with headers of
    their own for them."""

    kind, status, code, blame = "rate_limited", 429, "rate_limit_exceeded", "caller"
    standings: "tuple[Any, ...]" = ()


class Cancelled(GatewayError):
    """The caller hung up; recorded, never sent."""

    kind, status, code, blame = "cancelled", 499, "request_cancelled", "caller"


class UpstreamFailed(GatewayError):
    kind, status, code, blame = "upstream_failed", 502, "upstream_error", "provider"


class UpstreamUnreachable(UpstreamFailed):
    """No connection, no name, connection reset before an answer."""

    code = "fetch_failed"


class ConnectFailed(UpstreamUnreachable):
    """No connection at all: refused, no route, no such name. Nothing answers at that address."""


class UpstreamTimeout(UpstreamFailed):
    kind, status, code = "upstream_timeout", 504, "timeout"


class ConnectTimeout(UpstreamTimeout):
    """No connection in time: nothing answers at that address."""


class UpstreamRateLimited(UpstreamFailed):
    kind, status, code = "rate_limited", 429, "upstream_rate_limited"


class UpstreamOverloaded(UpstreamFailed):
    """The provider has too much to do (503, 529)."""

    kind, status, code = "overloaded", 529, "overloaded"


class UpstreamRefused(UpstreamFailed):
    """The provider refused our credential, our account, or does not know the model."""

    code = "upstream_refused"


class StreamTruncated(UpstreamFailed):
    """The stream ended without its protocol's terminal event."""

    code = "stream_truncated"


class NoProviderLeft(GatewayError):
    kind, status, code, blame = "no_provider", 503, "no_available_provider", "provider"


class Unavailable(GatewayError):
    """A store of ours is unavailable: unknown is not denied."""

    kind, status, code, blame = "unavailable", 503, "service_unavailable", "gateway"

    def __init__(self, message: str = "The service is temporarily unavailable; try again.", **more) -> None:
        more.setdefault("retry_after", 1.0)
        super().__init__(message, **more)


class Overloaded(GatewayError):
    kind, status, code, blame = "overloaded", 529, "overloaded", "gateway"


class Internal(GatewayError):
    """Shown for an unexpected exception; the log has the cause under the request id."""


class Interrupted(GatewayError):
    """The request under this Idempotency-Key began and its answer is lost; it is not done again."""

    kind, code = "unavailable", "interrupted"
