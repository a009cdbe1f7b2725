"""Facts for settlement that all attempts of a request share."""

from msgspec import Struct

from gateway.billing.context import RequestContext
from gateway.billing.identity import BillingIdentity, billing_identity_of
from gateway.billing.unit_estimates import BYTES_PER_TOKEN
from gateway.metering.models import STREAMED
from gateway.neutral.hosted_uses import NO_USES, HostedUse
from gateway.neutral.request import Request
from gateway.neutral.usage import Units


class Terms(Struct, frozen=True, eq=False):
    """Facts that all attempts of a request share. `flags` are the flags of its rows; `prompt_tokens` is the estimated
    count of its prompt with media; `requested_model` is the model as the caller wrote it,
    `hosted_uses` what it uses beside that model."""

    context: RequestContext
    billing_identity: BillingIdentity
    request: bytes
    prompt_bytes: int
    prompt_tokens: int
    requested_model: str
    flags: int
    units: Units | None = None
    hosted_uses: tuple[HostedUse, ...] = NO_USES

    @property
    def input_tokens(self) -> int:
        """The estimated tokens of everything that a provider reads, as rate limits count them."""
        if self.units is None:
            return self.prompt_tokens
        return self.prompt_tokens + self.units.likely.input_total


def terms_of(context: RequestContext, request: Request) -> Terms:
    """Return the terms of a request."""
    requirements = request.requirements
    prompt_bytes = requirements.prompt_bytes
    return Terms(
        context,
        billing_identity_of(context.caller),
        bytes.fromhex(context.request_id),
        prompt_bytes,
        requirements.likely_media_tokens - (-prompt_bytes // BYTES_PER_TOKEN),
        request.requested_model,
        STREAMED if requirements.stream else 0,
        requirements.units,
        requirements.hosted_uses,
    )
