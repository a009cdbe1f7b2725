"""Applications that registered by themselves (RFC 7591), and what is kept of an application's own words."""

import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peewee import fn

from gateway import ids
from gateway.accounts import tokens
from gateway.clock import SECOND_US
from gateway.errors import RateLimited
from gateway.oauth import redirects
from gateway.oauth.models import OAuthClient, OAuthGrant
from gateway.oauth.scopes import SCOPES
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

SECRET = "llmgcs_"
CODE = "authorization_code"
REFRESH = "refresh_token"
CREDENTIALS = "client_credentials"
PUBLIC = "none"
METHODS = (PUBLIC, "client_secret_basic", "client_secret_post")
MOST_CLIENTS = 20_000  # of the installation
MOST_REDIRECTS = 20
LONGEST_TEXT = 1_000
LONGEST_NAME = 120
ADDRESS = "https://"  # how the id of a client begins that is the address of its document
ROOM_S = 600  # a registration that nobody used may have to make room after that
TEXTS = ("client_uri", "logo_uri", "tos_uri", "policy_uri", "software_id", "software_version", "application_type")


FindDescribed = Callable[[str, bool], "OAuthApp | None"]


class WrongMetadata(Exception):
    """What is wrong with an application's description: RFC 7591's word, and a sentence."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


@dataclass(frozen=True, slots=True)
class OAuthApp:
    """An application, in the words that Authlib asks for. `generation` is that of the key it stands for."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    grant_types: tuple[str, ...]
    method: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    secret_hash: str = field(default="", repr=False)
    hash_keys: Sequence[bytes] = field(default=(), repr=False)
    key_id: str = ""
    generation: int = 0

    def allows_redirect(self, uri: str) -> bool:
        return any(redirects.matches(one, uri) for one in self.redirect_uris)

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.grant_types

    def check_client_secret(self, secret: str) -> bool:
        if not self.secret_hash:
            return False
        if tokens.well_formed(secret):
            made = [tokens.hash_token(secret, key) for key in self.hash_keys]
        else:
            made = []
        return any(hmac.compare_digest(one, self.secret_hash) for one in made)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        """One with a secret may send it either way; one without sends none."""
        return (method == PUBLIC) == (self.method == PUBLIC)


class Clients:
    """Those that registered, in the store; `described` finds those whose id is an address."""

    def __init__(self, database: Database, secrets: Secrets, described: "FindDescribed") -> None:
        self._database = database
        self._hash_keys = secrets.hash_keys
        self._described = described

    def register(self, given: Mapping[str, Any], key_id: str = "", generation: int = 0) -> tuple[OAuthApp, str, int]:
        """A new client as it describes itself, its secret ("" for a public one) and the second of its making. `key_id`:
        an API key that it stands for by client credentials.

        WrongMetadata; RateLimited where there is no room for more.
        """
        metadata = read_metadata(given, bool(key_id))
        client_id = ids.new("client")
        public = metadata["token_endpoint_auth_method"] == PUBLIC
        secret = "" if public else ids.token(SECRET)
        if secret:
            hashed = tokens.hash_token(secret, self._hash_keys[0])
        else:
            hashed = ""

        def work() -> int:
            now = self._database.now_us()
            _make_room(now)
            OAuthClient.insert(
                id=client_id,
                name=metadata["client_name"],
                secret_hash=hashed,
                metadata=json.dumps(metadata | ({"generation": generation} if key_id else {})),
                key_id=key_id,
                created_at=now,
            ).execute()
            return now // SECOND_US

        made_at = self._database.write(work)
        return make_client(client_id, metadata, hashed, self._hash_keys, key_id, generation), secret, made_at

    def find_asking(self, client_id: str) -> OAuthApp | None:
        """As `find`, for who asks without a person: the host of an address is asked only where somebody allowed that
        client something. Unavailable."""
        if not client_id.startswith(ADDRESS):
            return self.find(client_id)
        if not (client_id.isascii() and client_id.isprintable()):
            return None
        allowed = self._database.read(lambda: OAuthGrant.select().where(OAuthGrant.client == client_id).exists())
        return self._described(client_id, allowed)

    def find(self, client_id: str) -> OAuthApp | None:
        """A client, by its id. Unavailable."""
        if client_id.startswith(ADDRESS):
            return self._described(client_id, True)
        if not client_id.isascii() or "\0" in client_id or len(client_id) > 40:
            return None
        row = self._database.read(lambda: OAuthClient.get_or_none(OAuthClient.id == client_id))
        if row is None:
            return None
        metadata = json.loads(row.metadata)
        generation = metadata.pop("generation", 0)
        return make_client(row.id, metadata, row.secret_hash, self._hash_keys, row.key_id, generation)


def make_client(
    client_id: str,
    metadata: Mapping[str, Any],
    secret_hash: str = "",
    hash_keys: Sequence[bytes] = (),
    key_id: str = "",
    generation: int = 0,
) -> OAuthApp:
    """A client of metadata that `read_metadata` gave."""
    return OAuthApp(
        client_id,
        metadata["client_name"],
        tuple(metadata.get("redirect_uris", ())),
        tuple(metadata["grant_types"]),
        metadata["token_endpoint_auth_method"],
        metadata,
        secret_hash,
        hash_keys,
        key_id,
        generation,
    )


def read_metadata(given: Mapping[str, Any], with_key: bool = False) -> dict[str, Any]:
    """What is kept of an application's own words: members that are known, in force as they stand. WrongMetadata."""
    grants = _read_grants(given, with_key)
    if CODE in grants:
        uris = _read_redirects(given)
    else:
        uris = []
    method = given.get("token_endpoint_auth_method") or "client_secret_basic"
    if method not in METHODS:
        raise _wrong(f"token_endpoint_auth_method is one of {', '.join(METHODS)}.")
    if method == PUBLIC and CREDENTIALS in grants:
        raise _wrong("client_credentials need a secret: send token_endpoint_auth_method client_secret_basic.")
    metadata: dict[str, Any] = {
        "client_name": _read_name(given, uris),
        "grant_types": grants,
        "response_types": ["code"] if CODE in grants else [],
        "token_endpoint_auth_method": method,
        "scope": " ".join(SCOPES),
    }
    if uris:
        metadata["redirect_uris"] = uris
    # Members that are absent stay absent: clients take null for a mistake.
    return metadata | {name: given[name] for name in TEXTS if _is_text(given.get(name))}


def _read_grants(given: Mapping[str, Any], with_key: bool) -> list[str]:
    grants = _strings(given, "grant_types") or [CODE]
    known = [one for one in (CODE, REFRESH, CREDENTIALS) if one in grants and (with_key or one != CREDENTIALS)]
    if CODE not in known and CREDENTIALS not in known:
        if with_key:
            wanted = ""
        else:
            wanted = "; client_credentials need an API key in the header Authorization"
        raise _wrong(f"grant_types has none that is served here: {CODE}, {REFRESH}{wanted}.")
    # Whoever signs in by a code is refreshed as well, so that people are not asked each hour.
    if CODE in known and REFRESH not in known:
        return [*known, REFRESH]
    return known


def _read_redirects(given: Mapping[str, Any]) -> list[str]:
    uris = _strings(given, "redirect_uris")
    if not 0 < len(uris) <= MOST_REDIRECTS:
        raise WrongMetadata("invalid_redirect_uri", f"redirect_uris has 1 to {MOST_REDIRECTS} addresses.")
    for uri in uris:
        problem = redirects.problem_of(uri)
        if problem:
            raise WrongMetadata("invalid_redirect_uri", f"One of redirect_uris {problem}.")
    return list(dict.fromkeys(uris))


def _read_name(given: Mapping[str, Any], uris: Sequence[str]) -> str:
    name = given.get("client_name")
    if isinstance(name, str):
        shown = "".join(sign for sign in name if sign.isprintable()).strip()
    else:
        shown = ""
    return shown[:LONGEST_NAME] or (redirects.host_of(uris[0])[:LONGEST_NAME] if uris else "An application")


def _strings(given: Mapping[str, Any], name: str) -> list[str]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(f"{name} is a list of texts.")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TEXT and value.isprintable()


def _wrong(description: str) -> WrongMetadata:
    return WrongMetadata("invalid_client_metadata", description)


def _make_room(now: int) -> None:
    """The oldest that nobody used gives way where there are as many as may be, else of those that are allowed nothing
    any more the one whose use is longest ago. RateLimited: there is none."""
    if OAuthClient.select().count() < MOST_CLIENTS:
        return
    unused = (OAuthClient.used_at == 0) & (OAuthClient.created_at < now - ROOM_S * SECOND_US)
    over = (OAuthClient.used_at > 0) & ~fn.EXISTS(OAuthGrant.select().where(OAuthGrant.client == OAuthClient.id))
    for free, order in ((unused, OAuthClient.created_at), (over, OAuthClient.used_at)):
        oldest = OAuthClient.select(OAuthClient.id).where(free).order_by(order).limit(1)
        if OAuthClient.delete().where(OAuthClient.id.in_([row.id for row in oldest])).execute():
            return
    raise RateLimited("Too many applications register here; try again later.", retry_after=float(ROOM_S))
