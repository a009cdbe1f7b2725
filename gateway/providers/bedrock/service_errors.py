"""Classifies errors of the service, which reports their kind in a header or in the frame instead of the body.

Wire facts: Amazon Bedrock API reference, Converse, "Errors"; AWS REST-JSON protocol, x-amzn-errortype.
"""

import re

from msgspec import structs

from gateway.errors import (
    GatewayError,
    UpstreamFailed,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers.bedrock.eventstream import Frame
from gateway.providers.failures import (
    MAX_ERROR_BYTES,
    Explanation,
    classify,
    diagnose,
    explain,
    read_refusal,
    retry_after,
)
from gateway.providers.protocol import Target, UpstreamReply

# The status of each exception in a stream; 500 for all others.
STATUSES = {
    "validationException": 400,
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "modelStreamErrorException": 424,
}
FAILED_MODEL = 424  # the model behind the service failed; the request is not at fault
# Messages of a 400 about the account or the catalogue entry: no access to the model, or a model that is served only by
# the id of an inference profile.
ACCOUNT = re.compile(
    r"on-demand throughput isn.t supported|inference profile|access to the model|don.t have access|not authorized"
    r"|model identifier|marked by provider as legacy|end of its life|use case details|operation not allowed",
    re.IGNORECASE,
)
QUOTA = "servicequotaexceededexception"  # which comes with the status 400


def http_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """Return the error for a response other than 2xx. Reads the body; never raises."""
    body = read_refusal(reply)
    secrets = (target.credential.secret, *target.credential.secret.split(":"))
    cause = explain(body, secrets)
    kind = reply.headers.get("x-amzn-errortype", "").partition(":")[0] or cause.kind.rpartition("#")[2]
    # `shaped` lets a caller see the message: the service's own error shape has no code in the body.
    cause = structs.replace(cause, code=kind, shaped=bool(cause.message))
    return _classify(reply.status, cause, target, retry_after(reply.headers))


def frame_failure(frame: Frame) -> GatewayError:
    """Return the error for an exception frame in a stream."""
    cause = explain(frame.payload)
    cause = structs.replace(cause, code=frame.name, message=cause.message or cause.text, shaped=True)
    return _classify(STATUSES.get(frame.name, 500), cause, None, None)


def read_failure(reply: UpstreamReply) -> GatewayError:
    """Return the error for a 2xx response that is not a stream."""
    cause = explain(reply.read_all()[:MAX_ERROR_BYTES])
    message = "The provider's response is not an event stream."
    return UpstreamFailed(message, upstream_status=reply.status, details={"responseText": cause.text})


def _classify(status: int, cause: Explanation, target: Target | None, wait: float | None) -> GatewayError:
    details = diagnose(cause, target)
    if cause.code.lower() == QUOTA:
        message = "The provider limits the rate of requests."
        return UpstreamRateLimited(message, details=details, upstream_status=status, retry_after=wait)
    if status == FAILED_MODEL:
        return UpstreamFailed("The provider's model failed.", details=details, upstream_status=status)
    if status == 400 and ACCOUNT.search(cause.message):
        message = "The provider does not serve this model to the gateway's account."
        return UpstreamRefused(message, details=details, upstream_status=status)
    if status == 400 and target is None and "timed out" in cause.message.lower():
        return UpstreamTimeout("The provider did not answer in time.", details=details, upstream_status=status)
    return classify(status, cause, target, wait)
