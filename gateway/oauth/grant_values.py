"""What grants are made of and found as, and what asks for tokens, without the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.oauth.models import TokenKind


@dataclass(frozen=True, slots=True)
class Consent:
    """What somebody allows. `client` is a client's id or address, `key_id` an API key of the user's own."""

    client: str
    client_name: str
    redirect_uri: str
    redirect_host: str
    challenge: str
    scope: str
    audience: str
    key_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class FoundCode:
    """A code that is neither used nor over."""

    id: str
    grant_id: str
    client: str
    scope: str
    audience: str
    redirect_uri: str
    challenge: str

    def get_redirect_uri(self) -> str:
        """As Authlib asks for it."""
        return self.redirect_uri


@dataclass(frozen=True, slots=True)
class FoundToken:
    """A token whose grant holds; `spent`: a refresh token that was used before."""

    id: str
    kind: TokenKind
    grant_id: str
    client: str
    user_id: str
    scope: str
    audience: str
    spent: bool
    over: bool


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """An access token and, where there is one, what it is refreshed with; they exist nowhere else."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    scope: str


@dataclass(frozen=True, slots=True)
class GrantInfo:
    """A grant as its person sees it; times in µs."""

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
class TokenQuestion:
    """What came: the fields of the body, the header Authorization ("": none), and who answers."""

    fields: Mapping[str, str] = field(repr=False)
    authorization: str = field(repr=False, default="")
    issuer: str = ""
