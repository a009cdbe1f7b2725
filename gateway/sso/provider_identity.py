"""The claims of an identity provider's tokens that the gateway uses."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from gateway.accounts.group_rules import clean_groups
from gateway.accounts.identity_providers import IdentityProvider
from gateway.accounts.member_attributes import clean_value
from gateway.accounts.members import read_email
from gateway.errors import InvalidRequest

MAX_NAME_LENGTH = 255
# Entra ID names the claim here instead of listing more groups than fit into a token.
OVERAGE = "_claim_names"
MISSING = object()


class ProviderIdentity(Struct, frozen=True):
    """A person at an issuer. `email` is "" if there is none that may be used: it is verified, or the operator or the
    owner of its domain trusts the provider. `groups` is None if the provider did not state them. `attributes` are those
    that it stated."""

    issuer: str
    subject: str
    email: str
    name: str
    groups: tuple[str, ...] | None
    sid: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def domain(self) -> str:
        return self.email.rpartition("@")[2]


def read_identity(provider: IdentityProvider, claims: Mapping[str, Any], is_complete: bool = True) -> ProviderIdentity:
    """Return the identity of checked claims; `is_complete`: as for `read_groups`."""
    sid = claims.get("sid")
    return ProviderIdentity(
        provider.issuer,
        claims["sub"],
        _read_email(provider, claims),
        _read_name(claims),
        read_groups(provider, claims, is_complete),
        sid if isinstance(sid, str) else "",
        read_attributes(provider, claims),
    )


def read_groups(
    provider: IdentityProvider, claims: Mapping[str, Any], is_complete: bool = True
) -> tuple[str, ...] | None:
    """Return the groups of the claim that the provider's settings name. None if they are unknown: without such a
    setting, if there are too many for a token, and if the claim is missing among claims that are not complete. The name
    of the claim may be a path such as realm_access.roles."""
    name = provider.groups_claim
    if not name:
        return None
    overage = claims.get(OVERAGE)
    if name not in claims and isinstance(overage, dict) and name in overage:
        return None
    value = _find_claim(claims, name)
    if value is None and not is_complete:
        return None
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return ()
    return tuple(clean_groups(value))


def read_attributes(provider: IdentityProvider, claims: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that the claims state, "" for empty ones. A missing claim states nothing: some answers of
    a provider have fewer claims than others."""
    found = {name: _find_claim(claims, claim, MISSING) for name, claim in provider.attribute_claims.items() if claim}
    return {name: clean_value(value) for name, value in found.items() if value is not MISSING}


def _find_claim(claims: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """Return the claim with a name, which may be a path such as realm_access.roles."""
    if claims.get(name) is not None:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part, default) if isinstance(value, dict) else default
    return value


def _read_email(provider: IdentityProvider, claims: Mapping[str, Any]) -> str:
    """Return the e-mail address in lower case; "" for a missing, invalid or unverified one."""
    text = claims.get("email")
    verified = claims.get("email_verified")
    is_verified = verified is True or verified == "true"  # Amazon Cognito sends text
    if not is_verified and (verified is not None or not provider.trust_email):
        return ""
    try:
        return read_email(text) if isinstance(text, str) else ""
    except InvalidRequest:
        return ""


def _read_name(claims: Mapping[str, Any]) -> str:
    name = claims.get("name")
    if not isinstance(name, str):
        return ""
    return " ".join(name.replace("\0", "").split())[:MAX_NAME_LENGTH]
