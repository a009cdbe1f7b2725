"""Temporary credentials for Amazon Bedrock, from the role of the gateway's host, and of another role if one is set."""

from collections.abc import Mapping

from gateway.providers.aws.role_credentials import RoleCredentials
from gateway.providers.identities.identity_calls import IdentityCalls
from gateway.providers.identities.upstream_identity import IssuedToken
from gateway.providers.protocol import UpstreamReply

ERROR_HEADER = "x-amzn-errortype"
# Errors of a key that AWS no longer knows, or that has expired.
REJECTED = ("ExpiredToken", "UnrecognizedClient", "InvalidClientTokenId")


class AwsIdentity:
    """The token is a key pair with its session token, in the form that the protocol signs with."""

    settings: tuple[str, ...] = ("region", "role_arn", "external_id")
    auth = ""

    def __init__(self, calls: IdentityCalls, environment: Mapping[str, str]) -> None:
        self._roles = RoleCredentials(calls, environment)

    def fetch(self, settings: Mapping[str, str]) -> IssuedToken:
        """Return credentials of the host's role, or of the role that it assumes. IdentityFailed."""
        region = settings.get("region", "")
        key, lifetime_s, source = self._roles.fetch(region)
        if role := settings.get("role_arn", ""):
            key, lifetime_s, assumed = self._roles.assume(key, region, role, settings.get("external_id", ""))
            source = f"{assumed}, by {source}"
        return IssuedToken(f"{key.ident}:{key.secret}:{key.session}", lifetime_s, source)

    def is_rejected(self, reply: UpstreamReply) -> bool:
        if reply.status not in (401, 403):
            return False
        return reply.status == 401 or reply.headers.get(ERROR_HEADER, "").startswith(REJECTED)
