"""The exception hierarchy of all errors that a caller can see.

GatewayError
├── caller's fault: InvalidRequest (400) ─ ContentRefused, UnknownModel, NotSupported, RequestTooLarge (413),
│   │               UnsupportedMediaType (415), IdempotencyKeyReused (422)
│   ├── Unauthenticated (401), Forbidden (403), NotFound (404), Conflict (409), Gone (410)
│   ├── SpendingLimitReached (402), OutOfCredits (402)
│   └── RateLimited (429) ─ BudgetInUse
├── provider's fault: UpstreamFailed (502) ─ UpstreamUnreachable ─ ConnectFailed,
│   │                 UpstreamTimeout (504) ─ ConnectTimeout,
│   │                 UpstreamRateLimited (429), UpstreamOverloaded (529), StreamTruncated,
│   │                 UpstreamRefused (credential, funding, unknown there)
│   └── NoProviderLeft (503)
├── Cancelled (499): the caller hung up
└── gateway's fault: Unavailable (503), Internal (500), Interrupted (500)

`kind` is what a dialect maps to its own words; `code` is the stable name listed in docs/errors.md; `blame` alone
decides whether another provider is tried. `status` is the HTTP status of the response; each class has a default.
"""

from typing import Any

from gateway.secret_text import hide_tokens

# Header of responses and errors that holds the number of upstream calls.
ATTEMPTS = "x-llmgateway-attempts"


# Characters of a message that are shown. Only the beginning of quoted caller input is kept; the end of the message
# stays because it says what to do.
MAX_MESSAGE_LENGTH = 2_000
SHOWN_START = 1_400
SHOWN_END = 400
MAX_PARAM_LENGTH = 255


def _cut(text: str) -> str:
    if len(text) <= MAX_MESSAGE_LENGTH:
        return text
    return f"{text[:SHOWN_START]} … {text[-SHOWN_END:]}"


class GatewayError(Exception):
    """An error that a caller may see. `message` says what to do and never holds a secret.

    `param` names the offending field ("" when none), `retry_after` is seconds, `status` and `code` may be narrowed per
    instance, `details` are extra members of the error object (strings), `upstream_status` is the status of the
    provider's response (0 without a response), `headers` are added to the response.

    `upstream_text` is the provider's own error text, scrubbed, for operators and logs; callers see `message`. `spent`
    is the usage that the provider counted before it failed (a neutral Usage), to be metered; None when it reported
    none. `caller_ids` identifies the caller of a rejected request for operators (key, project, organization, member);
    it is logged and never sent.
    """

    kind = "internal"
    status = 500
    code = "internal_error"
    blame = "gateway"
    upstream_text: str = ""
    spent: object | None = None
    caller_ids: "tuple[str, str, str, str] | None" = None

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
        message = _cut(hide_tokens(message))
        super().__init__(message)
        self.message = message
        param = hide_tokens(param)
        if len(param) <= MAX_PARAM_LENGTH:
            self.param = param
        else:
            self.param = f"{param[:MAX_PARAM_LENGTH]}…"
        self.retry_after = retry_after
        self.details = details
        self.upstream_status = upstream_status
        self.headers = headers
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status


class InvalidRequest(GatewayError):
    kind = "invalid_request"
    status = 400
    code = "invalid_parameters"
    blame = "caller"


class ContentRefused(InvalidRequest):
    kind = "content_refused"
    code = "content_policy_violation"


class UnknownModel(InvalidRequest):
    code = "model_not_found"


class NotSupported(InvalidRequest):
    """No provider of the model supports a feature that the request requires."""

    code = "model_not_supported"


class SealedElsewhere(NotSupported):
    """Another account encrypted a part of the conversation: that account comes first, the target can serve without the
    part."""


class ContentNeeded(NotSupported):
    """The target does not load URLs: it can be used after the content has been fetched."""


class RequestTooLarge(InvalidRequest):
    kind = "too_large"
    status = 413
    code = "request_too_large"


class UnsupportedMediaType(InvalidRequest):
    kind = "unsupported_media_type"
    status = 415
    code = "unsupported_media_type"


class RangeNotSatisfiable(InvalidRequest):
    kind = "range_not_satisfiable"
    status = 416
    code = "range_not_satisfiable"


class IdempotencyKeyReused(InvalidRequest):
    """The Idempotency-Key was already used for a different request."""

    status = 422
    code = "idempotency_key_reused"


class Unauthenticated(GatewayError):
    kind = "unauthenticated"
    status = 401
    code = "invalid_api_key"
    blame = "caller"


class Forbidden(GatewayError):
    kind = "forbidden"
    status = 403
    code = "permission_denied"
    blame = "caller"


class NotFound(GatewayError):
    kind = "not_found"
    status = 404
    code = "not_found"
    blame = "caller"


class MethodNotAllowed(GatewayError):
    kind = "method_not_allowed"
    status = 405
    code = "method_not_allowed"
    blame = "caller"


class Conflict(GatewayError):
    kind = "conflict"
    status = 409
    code = "conflict"
    blame = "caller"


class IdempotencyInFlight(Conflict):
    """The first request with this Idempotency-Key is still in progress."""

    code = "idempotency_in_flight"


class Gone(GatewayError):
    kind = "gone"
    status = 410
    code = "gone"
    blame = "caller"


class SpendingLimitReached(GatewayError):
    """A spending limit has no room. `resets_us` is when its period ends (0: never), `period_unit` the unit of the
    period's length, `limit` the name of the limit if it has one."""

    kind = "limit_reached"
    status = 402
    code = "key_limit_reached"
    blame = "caller"
    resets_us: int = 0
    period_unit: str = ""
    limit: str = ""


class OutOfCredits(GatewayError):
    kind = "out_of_credits"
    status = 402
    code = "insufficient_credits"
    blame = "caller"


class RateLimited(GatewayError):
    """A rate limit rejected the request.

    `standings` are the states of the limits that were exceeded (limits.rates.RateLimitStatus), for API formats that
    report them in their own headers.
    """

    kind = "rate_limited"
    status = 429
    code = "rate_limit_exceeded"
    blame = "caller"
    standings: "tuple[Any, ...]" = ()


class BudgetInUse(RateLimited):
    """A budget has room for the request, but requests in progress have reserved it. `spare_nusd` is what would be left
    of the budget if this request were the only one."""

    code = "budget_in_use"
    spare_nusd: int = 0


class Cancelled(GatewayError):
    """The caller disconnected. The error is recorded and never sent."""

    kind = "cancelled"
    status = 499
    code = "request_cancelled"
    blame = "caller"


class UpstreamFailed(GatewayError):
    kind = "upstream_failed"
    status = 502
    code = "upstream_error"
    blame = "provider"


class EmptyAnswer(UpstreamFailed):
    """A provider ended its answer without any content. `finish` is the neutral finish reason, `usage` the neutral
    Usage, None if the provider reported none."""

    finish = ""
    usage: Any = None


class UpstreamUnreachable(UpstreamFailed):
    """The connection or the name lookup failed, or the connection was reset before a response."""

    code = "fetch_failed"


class ConnectFailed(UpstreamUnreachable):
    """No connection was established: refused, no route or no such host."""


class UpstreamTimeout(UpstreamFailed):
    kind = "upstream_timeout"
    status = 504
    code = "timeout"


class ConnectTimeout(UpstreamTimeout):
    """The connection was not established in time."""


class UpstreamRateLimited(UpstreamFailed):
    kind = "rate_limited"
    status = 429
    code = "upstream_rate_limited"


class UpstreamOverloaded(UpstreamFailed):
    """The provider is overloaded (status 503 or 529)."""

    kind = "overloaded"
    status = 529
    code = "overloaded"


class UpstreamRefused(UpstreamFailed):
    """The provider rejected the credential or the account, or does not know the model."""

    code = "upstream_refused"


class IdentityFailed(UpstreamRefused):
    """The platform's workload identity has no token for the provider. The text names no address, file or secret."""

    code = "workload_identity_failed"


class StreamTruncated(UpstreamFailed):
    """The stream ended without its protocol's terminal event."""

    code = "stream_truncated"


class NoProviderLeft(GatewayError):
    kind = "no_provider"
    status = 503
    code = "no_available_provider"
    blame = "provider"


class Unavailable(GatewayError):
    """A database or store of the gateway is unavailable, so the request can be neither allowed nor denied."""

    kind = "unavailable"
    status = 503
    code = "service_unavailable"
    blame = "gateway"

    def __init__(self, message: str = "The service is temporarily unavailable; try again.", **more: Any) -> None:
        more.setdefault("retry_after", 1.0)
        super().__init__(message, **more)


class Overloaded(GatewayError):
    kind = "overloaded"
    status = 529
    code = "overloaded"
    blame = "gateway"


class Internal(GatewayError):
    """An unexpected exception; the log holds its cause under the request id."""


class Interrupted(GatewayError):
    """The request under this Idempotency-Key was started and its response was lost; it is not repeated."""

    kind = "unavailable"
    code = "interrupted"
