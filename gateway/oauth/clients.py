"""Dynamic client registration (RFC 7591): registered applications and their metadata,
redirect URIs, and clients that use the https URL of their description as their id."""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from peewee import fn

from gateway import ids
from gateway.callers import tokens as tokens_module
from gateway.callers.models import OAuthClient, OAuthGrant
from gateway.callers.scopes import SCOPES
from gateway.callers.throttle import PendingTable, make_room, network_hash
from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError, RateLimited
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets

# Redirect URIs: which URIs an application may register, and which registered URI a request may name.

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
MAX_URI_LENGTH = 1_000
# Schemes of programs without the dot that RFC 8252, section 7.1 requires. Other schemes could run in a browser.
PROGRAMS = frozenset(
    (
        *("cursor", "vscode", "vscode-insiders", "code-oss", "vscodium", "windsurf", "windsurf-next", "claude", "zed"),
        *("chatgpt", "codex", "warp", "raycast", "goose", "kiro", "trae", "antigravity", "jetbrains", "lmstudio"),
    )
)


def problem_of(uri: str) -> str:
    """Return why a URI cannot be registered, "" if it can: https, http on loopback, or a program's private scheme."""
    if not 0 < len(uri) <= MAX_URI_LENGTH:
        return f"must have 1 to {MAX_URI_LENGTH} characters"
    if not (uri.isascii() and uri.isprintable()) or any(character in uri for character in " \\\"<>^`{|}'"):
        return "has characters that are not allowed in a URI"
    parts = _split(uri)
    if parts is None:
        return "is not an absolute URI"
    if "#" in uri:
        return "has a fragment"
    if parts.username is not None or parts.password is not None:
        return "has a user name"
    return _problem_of_scheme(parts)


def _problem_of_scheme(parts: SplitResult) -> str:
    scheme = parts.scheme
    host = parts.hostname
    if scheme == "https":
        if host:
            return ""
        return "has no host"
    if scheme == "http":
        if host in LOOPBACK:
            return ""
        return "does not use https; http is for loopback addresses only"
    if "." in scheme or scheme in PROGRAMS:
        return ""
    return "has a scheme that is not allowed"


def matches(registered: str, requested: str) -> bool:
    """Return whether `requested` is the registered URI. On loopback the port may differ (RFC 8252, section 7.3)."""
    if registered == requested:
        return True
    if problem_of(requested):
        return False
    ours = _split(registered)
    theirs = _split(requested)
    return (
        ours is not None
        and theirs is not None
        and ours.scheme == theirs.scheme == "http"
        and ours.hostname == theirs.hostname
        and ours.hostname in LOOPBACK
        and (ours.path or "/", ours.query) == (theirs.path or "/", theirs.query)
    )


def host_of(uri: str) -> str:
    """Return the host of a URI or the scheme of a program, for display."""
    parts = _split(uri)
    if parts is None:
        return ""
    if parts.scheme == "https":
        return parts.netloc
    if parts.scheme == "http":
        return f"this computer ({parts.hostname})"
    return f"{parts.scheme}:"


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme:
        return parts
    return None


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
        return any(matches(registered, uri) for registered in self.redirect_uris)

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
        problem = problem_of(uri)
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
        return host_of(uris[0])[:MAX_NAME_LENGTH]
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


# Client ID metadata documents: clients that use the https URL of their description as their id.
#
# Any caller can send such a URL. The fetch is therefore guarded against internal addresses, follows no redirects and
# has a small size limit. All workers share the stored result for an hour, or for a week while the host is unavailable.
# Invalid documents are not stored. Format:
# https://datatracker.ietf.org/doc/draft-ietf-oauth-client-id-metadata-document/

MAX_URL_LENGTH = 400
MAX_BYTES = 16 << 10
TIMEOUT_S = 5.0
TTL_S = 3600
MAX_AGE_S = 7 * 86_400.0
KIND = "oauth_client"
# Error codes of a fetch that make the document invalid. After any other error the stored document stays valid.
INVALID_CODES = frozenset(("too_many_redirects", "response_too_large", "address_not_allowed", "invalid_address"))
HEADERS = {"accept": "application/json", "user-agent": "llmgateway"}


class FetchedDocument(Protocol):
    """The response of a fetch."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class DocumentFetcher(Protocol):
    """Fetches an untrusted URL with guards and a size limit. Raises GatewayError."""

    def fetch(
        self, url: str, max_bytes: int, *, timeout_s: float, headers: dict[str, str], redirects: int
    ) -> FetchedDocument: ...


class DocumentUnavailable(Exception):
    """The host of the document is unavailable."""


class ClientDocuments:
    """Fetches client metadata documents and stores them."""

    def __init__(self, documents: Documents, fetcher: DocumentFetcher, clock: Clock) -> None:
        self._documents = documents
        self._fetcher = fetcher
        self._clock = clock

    def find(self, address: str, may_fetch: bool = True) -> OAuthApp | None:
        """Return the client that the document at `address` describes, or None if there is no valid document.

        Unless `may_fetch`, only a stored document is used, regardless of its age.
        """
        if not may_be_client(address):
            return None
        name = hashlib.sha256(address.encode()).hexdigest()
        now = self._clock.now_us() // SECOND_US
        stored = self._documents.get(KIND, name)
        known = None
        if stored is not None:
            known = json.loads(stored)
        if known is not None and (now < known["until"] or not may_fetch):
            return make_client(address, known["metadata"])
        if not may_fetch:
            return None
        try:
            metadata = self._load(address)
        except DocumentUnavailable:
            # An outage of the host must not sign out the users of its application.
            if known is not None:
                return make_client(address, known["metadata"])
            return None
        if metadata is None:
            if known is not None:
                self._documents.delete(KIND, name)
            return None
        entry = {"until": now + TTL_S, "metadata": metadata}
        self._documents.put(KIND, name, json.dumps(entry).encode(), MAX_AGE_S)
        return make_client(address, metadata)

    def _load(self, address: str) -> dict[str, Any] | None:
        """Fetch the metadata. Returns None for an invalid or missing document; raises DocumentUnavailable."""
        try:
            response = self._fetcher.fetch(address, MAX_BYTES, timeout_s=TIMEOUT_S, headers=HEADERS, redirects=0)
        except GatewayError as error:
            if error.code in INVALID_CODES:
                return None
            raise DocumentUnavailable from None
        if response.status >= 500:
            raise DocumentUnavailable
        try:
            if response.status != 200:
                return None
            document = json.loads(response.body)
            # A public document cannot contain a secret, so the client is public; PKCE binds its codes.
            if not isinstance(document, dict) or document.get("client_id") != address or "client_secret" in document:
                return None
            return read_metadata({**document, "token_endpoint_auth_method": "none"})
        except (InvalidMetadata, ValueError, RecursionError):
            return None


def may_be_client(address: str) -> bool:
    """Return whether a client id can be the URL of a document: https, with a path, in normal form."""
    if not address.startswith("https://") or len(address) > MAX_URL_LENGTH or problem_of(address):
        return False
    path = urlsplit(address).path
    return path not in ("", "/") and not {".", ".."} & set(path.split("/"))
