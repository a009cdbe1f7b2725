"""Values of the authorization server: consent, codes, tokens, grants and token requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from gateway.callers.models import TokenKind


class Consent(Struct, frozen=True):
    """A person's consent. `client` is the id or the document URL of a client, `key_id` one of the person's API keys,
    `team_id` the team that they chose ("": none)."""

    client: str
    client_name: str
    redirect_uri: str
    redirect_host: str
    challenge: str
    scope: str
    audience: str
    key_id: str
    user_id: str
    team_id: str = ""


class ValidCode(Struct, frozen=True):
    """An authorization code that is neither used nor expired."""

    id: str
    grant_id: str
    client: str
    scope: str
    audience: str
    redirect_uri: str
    challenge: str

    def get_redirect_uri(self) -> str:
        """Return the redirect URI (required by Authlib)."""
        return self.redirect_uri


class StoredToken(Struct, frozen=True):
    """A token of a valid grant. Only refresh tokens can be `used`."""

    id: str
    kind: TokenKind
    grant_id: str
    client: str
    user_id: str
    scope: str
    audience: str
    used: bool
    expired: bool


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """A new access token and refresh token ("": none) in plain text. The store has only their hashes."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    scope: str


class GrantInfo(Struct, frozen=True):
    """A grant as shown to its person. Times are in µs."""

    id: str
    client: str
    client_name: str
    redirect_host: str
    scopes: tuple[str, ...]
    key_id: str
    key_name: str
    user_id: str
    created_at_us: int
    used_at_us: int
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class OAuthCall:
    """A request to the token or revocation endpoint. `authorization` is the header ("": none), `issuer` our URL."""

    fields: Mapping[str, str] = field(repr=False)
    authorization: str = field(repr=False, default="")
    issuer: str = ""
