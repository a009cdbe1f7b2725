"""Dynamic client registration (RFC 7591): registered applications and their metadata."""

import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peewee import fn

from gateway import ids
from gateway.callers import tokens as tokens_module
from gateway.callers.oauth_models import OAuthClient, OAuthGrant
from gateway.callers.scopes import SCOPES
from gateway.callers.throttle import PendingTable, make_room, network_hash
from gateway.clock import SECOND_US
from gateway.errors import RateLimited
from gateway.oauth import redirects
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

SECRET = "llmgcs_"
CODE = "authorization_code"
REFRESH = "refresh_token"
CREDENTIALS = "client_credentials"
GRANTS = (CODE, CREDENTIALS, REFRESH)
PUBLIC = "none"
METHODS = (PUBLIC, "client_secret_basic", "client_secret_post")
MAX_CLIENTS = 20_000  # in the installation
MAX_REDIRECTS = 20
MAX_TEXT_LENGTH = 1_000
MAX_NAME_LENGTH = 120
ADDRESS = "https://"  # prefix of a client id that is the URL of a metadata document
RETRY_S = 600.0
UNUSED = PendingTable("oauth_client", "id", "created_at", "used_at = 0")
TEXTS = ("client_uri", "logo_uri", "tos_uri", "policy_uri", "software_id", "software_version", "application_type")


FindDescribedClient = Callable[[str, bool], "OAuthApp | None"]


class InvalidMetadata(Exception):
    """The metadata of an application is invalid. `error` is the code of RFC 7591."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


@dataclass(frozen=True, slots=True)
class OAuthApp:
    """An application, with the methods that Authlib calls. `generation` is that of the API key `key_id`."""

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
        return any(redirects.matches(registered, uri) for registered in self.redirect_uris)

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.grant_types

    def check_client_secret(self, secret: str) -> bool:
        if not self.secret_hash or not tokens_module.well_formed(secret):
            return False
        hashes = [tokens_module.hash_token(secret, key) for key in self.hash_keys]
        return any(hmac.compare_digest(candidate, self.secret_hash) for candidate in hashes)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        """Return whether the method fits: a client with a secret may send it in the header or in the body."""
        return (method == PUBLIC) == (self.method == PUBLIC)


class Clients:
    """Registered clients in the store. `described` finds clients with the URL of their metadata document as id."""

    def __init__(self, database: Database, secrets: Secrets, described: "FindDescribedClient") -> None:
        self._database = database
        self._hash_keys = secrets.hash_keys
        self._described = described

    def register(
        self, given: Mapping[str, Any], key_id: str = "", generation: int = 0, peer: str = ""
    ) -> tuple[OAuthApp, str, int]:
        """Register a client. Return it with its secret ("" for a public client) and the creation time in Unix seconds.

        `key_id` is the API key that the client may use with client credentials, `peer` the address that registers it.
        Raises InvalidMetadata, and RateLimited if there are too many clients that are used.
        """
        metadata = read_metadata(given, bool(key_id))
        client_id = ids.new("client")
        secret = ""
        secret_hash = ""
        if metadata["token_endpoint_auth_method"] != PUBLIC:
            secret = ids.token(SECRET)
            secret_hash = tokens_module.hash_token(secret, self._hash_keys[0])
        stored_metadata = dict(metadata)
        if key_id:
            stored_metadata["generation"] = generation

        network = network_hash(peer, self._hash_keys[0])

        def work() -> int:
            now = self._database.now_us()
            self._make_room(network)
            OAuthClient.insert(
                id=client_id,
                name=metadata["client_name"],
                secret_hash=secret_hash,
                metadata=json.dumps(stored_metadata),
                key_id=key_id,
                network=network,
                created_at=now,
            ).execute()
            return now // SECOND_US

        created_at = self._database.write(work)
        client = make_client(client_id, metadata, secret_hash, self._hash_keys, key_id, generation)
        return client, secret, created_at

    def _make_room(self, network: str) -> None:
        """Delete clients if there are already MAX_CLIENTS, or if their network has used its share of them. Raises
        RateLimited if none can be deleted.

        Deletes the oldest clients that were never used, otherwise the least recently used client without grants.
        """
        if make_room(self._database, UNUSED, network, MAX_CLIENTS):
            return
        without_grants = (OAuthClient.used_at > 0) & ~fn.EXISTS(
            OAuthGrant.select().where(OAuthGrant.client == OAuthClient.id)
        )
        oldest = OAuthClient.select(OAuthClient.id).where(without_grants).order_by(OAuthClient.used_at).limit(1)
        if not OAuthClient.delete().where(OAuthClient.id.in_([row.id for row in oldest])).execute():
            raise RateLimited("Too many applications are registered. Try again later.", retry_after=RETRY_S)

    def find_for_token_request(self, client_id: str) -> OAuthApp | None:
        """Find the client of a request without a signed-in person. Raises Unavailable.

        The document at a client's URL is fetched only if a person has authorized that client: otherwise anyone could
        make the gateway send requests.
        """
        if not client_id.startswith(ADDRESS):
            return self.find(client_id)
        if not (client_id.isascii() and client_id.isprintable()):
            return None
        allowed = self._database.read(OAuthGrant.select().where(OAuthGrant.client == client_id).exists)
        return self._described(client_id, allowed)

    def find(self, client_id: str) -> OAuthApp | None:
        """Return a client by its id, or None. Raises Unavailable."""
        if client_id.startswith(ADDRESS):
            return self._described(client_id, True)
        if not client_id.isascii() or "\0" in client_id or len(client_id) > 40:
            return None
        row = self._database.read(OAuthClient.select().where(OAuthClient.id == client_id).first)
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
    """Return a client from the metadata that `read_metadata` returned."""
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
    """Validate the metadata of an application and return its known members. Raises InvalidMetadata."""
    grants = _read_grants(given, with_key)
    uris = []
    response_types = []
    if CODE in grants:
        uris = _read_redirects(given)
        response_types = ["code"]
    method = given.get("token_endpoint_auth_method") or "client_secret_basic"
    if method not in METHODS:
        raise _invalid(f"token_endpoint_auth_method must be one of {', '.join(METHODS)}.")
    if method == PUBLIC and CREDENTIALS in grants:
        raise _invalid("client_credentials requires a secret: send token_endpoint_auth_method client_secret_basic.")
    metadata: dict[str, Any] = {
        "client_name": _read_name(given, uris),
        "grant_types": grants,
        "response_types": response_types,
        "token_endpoint_auth_method": method,
        "scope": " ".join(SCOPES),
    }
    if uris:
        metadata["redirect_uris"] = uris
    # Absent members stay absent: some clients reject null.
    return metadata | {name: given[name] for name in TEXTS if _is_text(given.get(name))}


def _read_grants(given: Mapping[str, Any], with_key: bool) -> list[str]:
    grants = _strings(given, "grant_types") or [CODE]
    supported = [grant_type for grant_type in GRANTS if with_key or grant_type != CREDENTIALS]
    known = [grant_type for grant_type in supported if grant_type in grants]
    if CODE not in known and CREDENTIALS not in known:
        hint = ""
        if not with_key:
            hint = " client_credentials requires an API key in the Authorization header."
        raise _invalid(f"grant_types has no supported value. Supported: {', '.join(supported)}.{hint}")
    # Without refresh tokens people would have to authorize the application every hour.
    if CODE in known and REFRESH not in known:
        return [*known, REFRESH]
    return known


def _read_redirects(given: Mapping[str, Any]) -> list[str]:
    uris = _strings(given, "redirect_uris")
    if not 0 < len(uris) <= MAX_REDIRECTS:
        raise InvalidMetadata("invalid_redirect_uri", f"redirect_uris must have 1 to {MAX_REDIRECTS} URIs.")
    for uri in uris:
        problem = redirects.problem_of(uri)
        if problem:
            raise InvalidMetadata("invalid_redirect_uri", f"An entry of redirect_uris {problem}.")
    return list(dict.fromkeys(uris))


def _read_name(given: Mapping[str, Any], uris: Sequence[str]) -> str:
    name = given.get("client_name")
    if isinstance(name, str):
        printable = "".join(character for character in name if character.isprintable()).strip()
        if printable:
            return printable[:MAX_NAME_LENGTH]
    if uris:
        return redirects.host_of(uris[0])[:MAX_NAME_LENGTH]
    return "Unnamed application"


def _strings(given: Mapping[str, Any], name: str) -> list[str]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _invalid(f"{name} must be a list of strings.")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT_LENGTH and value.isprintable()


def _invalid(description: str) -> InvalidMetadata:
    return InvalidMetadata("invalid_client_metadata", description)
