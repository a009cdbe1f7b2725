"""Classifies errors of this service, whose kind is in a header or in the frame, not in the body.

Wire facts: Amazon Bedrock API reference, Converse, "Errors"; AWS REST-JSON protocol, x-amzn-errortype.
"""

import dataclasses
import re

from gateway.errors import (
    GatewayError,
    UpstreamFailed,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers.bedrock.eventstream import Frame
from gateway.providers.failures import (
    MOST_REFUSAL,
    Explanation,
    classify,
    diagnose,
    explain,
    read_refusal,
    retry_after,
)
from gateway.providers.protocol import Target, UpstreamReply

STATUSES = {
    "validationException": 400,
    "throttlingException": 429,
    "internalServerException": 500,
    "serviceUnavailableException": 503,
    "modelStreamErrorException": 424,
    "modelTimeoutException": 408,
}
FAILED_MODEL = 424  # the model behind the service failed: no fault of the request
# A 400 about our account or catalogue: quotas, models that are not open to it or go by a profile's id alone.
ACCOUNT = re.compile(
    r"on-demand throughput isn.t supported|inference profile|access to the model|don.t have access|not authorized"
    r"|model identifier|marked by provider as legacy|end of its life|use case details|operation not allowed",
    re.IGNORECASE,
)
QUOTA = ("servicequotaexceededexception", "throttlingexception", "modelnotreadyexception")


def http_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """The error that an answer other than 2xx stands for. Reads the body; never raises."""
    body = read_refusal(reply)
    secrets = (target.credential.secret, *target.credential.secret.split(":"))
    cause = explain(body, secrets)
    kind = reply.headers.get("x-amzn-errortype", "").partition(":")[0] or cause.kind.rpartition("#")[2]
    # Ours are the words, so they count as told in the shape that a caller may be shown.
    cause = dataclasses.replace(cause, code=kind, shaped=bool(cause.message))
    return _classify(reply.status, cause, target, retry_after(reply.headers))


def frame_failure(frame: Frame) -> GatewayError:
    """The error that an exception within a stream stands for."""
    cause = explain(frame.payload)
    cause = dataclasses.replace(cause, code=frame.name, message=cause.message or cause.text, shaped=True)
    return _classify(STATUSES.get(frame.name, 500), cause, None, None)


def read_failure(reply: UpstreamReply) -> GatewayError:
    """The error of a 2xx answer that is no stream."""
    cause = explain(reply.read_all()[:MOST_REFUSAL])
    message = "The provider did not answer with an event stream."
    return UpstreamFailed(message, upstream_status=reply.status, details={"responseText": cause.text})


def _classify(status: int, cause: Explanation, target: Target | None, wait: float | None) -> GatewayError:
    details = diagnose(cause, target)
    if cause.code.lower() in QUOTA:
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
