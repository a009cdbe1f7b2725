"""Facts for settlement that all attempts of a request share."""

from msgspec import Struct

from gateway.billing.context import RequestContext
from gateway.billing.identity import BillingIdentity, billing_identity_of
from gateway.billing.units import BYTES_PER_TOKEN
from gateway.metering.models import STREAMED
from gateway.neutral.usage import Units


class Terms(Struct, frozen=True, eq=False):
    """Facts that all attempts of a request share. `flags` are the flags of its rows; `prompt_tokens` is the estimated
    count of its prompt with media."""

    context: RequestContext
    billing_identity: BillingIdentity
    request: bytes
    prompt_bytes: int
    prompt_tokens: int
    requested_model: str
    flags: int
    units: Units | None = None


def terms_of(
    context: RequestContext, prompt_bytes: int, requested_model: str, streamed: bool, units: Units | None = None
) -> Terms:
    """Return the terms of a request; `requested_model` is the model as the caller wrote it."""
    tokens = -(-prompt_bytes // BYTES_PER_TOKEN)
    if context.request is not None:
        tokens += context.request.requirements.likely_media_tokens
    return Terms(
        context,
        billing_identity_of(context.caller),
        bytes.fromhex(context.request_id),
        prompt_bytes,
        tokens,
        requested_model,
        STREAMED if streamed else 0,
        units,
    )
