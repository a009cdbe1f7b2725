"""Google's tokens: from service accounts, and from Application Default Credentials without a stored key.

The latter are tokens of the metadata server, and of credential files.

Wire facts: Google Cloud documentation, "How Application Default Credentials works", "Predefined VM metadata keys" (the
metadata server), AIP-4110 and AIP-4117; https://developers.google.com/identity/protocols/oauth2/web-server#offline
(refresh tokens).
"""

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from gateway.clock import SECOND_US, Clock
from gateway.errors import IdentityFailed, UpstreamFailed, UpstreamRefused
from gateway.providers.bedrock.signing import CredentialScope, sign
from gateway.providers.identities.role_credentials import RoleCredentials
from gateway.providers.identities.upstream_identity import (
    FORM_HEADERS,
    IdentityCalls,
    IssuedToken,
    read_file,
    read_object,
    refusal,
    seconds_in,
    text_in,
)
from gateway.providers.protocol import UpstreamReply
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.transport import Transport

# OAuth access tokens from service accounts, for Vertex AI (RFC 7523, as in Google's server-to-server guide).

jwt = LazyImport("joserfc.jwt")
jwk = LazyImport("joserfc.jwk")
jose_errors = LazyImport("joserfc.errors")

TOKEN_URL = "https://oauth2.googleapis.com/token"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
LIFETIME_S = 3600
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXPIRY_MARGIN_S = 60.0  # seconds before its expiry from which a token is not used any more
CACHE_SIZE = 512
MAX_KEY_LENGTH = 4_000  # characters; a 4096-bit key has 3,300 and takes 0.2 s to check, an 8192-bit key 3 s
FETCH_TIMEOUT_S = 15.0
ANSWER_LIMIT = 64 * 1024

# fetch(url, headers, body) → (status, body) of a POST; raises UpstreamUnreachable or UpstreamTimeout.
Fetch = Callable[[str, Mapping[str, str], bytes], tuple[int, bytes]]


def fetch_over(transport: Transport) -> Fetch:
    """Return a Fetch over the gateway's HTTP client."""

    def fetch(url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        answer = transport.request("POST", url, headers, body, timeout_s=FETCH_TIMEOUT_S, max_bytes=ANSWER_LIMIT)
        return answer.status, answer.body

    return fetch


@dataclass(slots=True)
class _Entry:
    """The token of one credential; `lock` lets one greenlet fetch it while the others wait."""

    lock: Lock = field(default_factory=Lock)
    token: str = field(default="", repr=False)
    until: float = 0.0


class AccessTokens:
    """Cache of access tokens by credential, until a minute before their expiry; fetches once at a time for each."""

    def __init__(self, fetch: Fetch, clock: Clock, token_url: str = TOKEN_URL) -> None:
        # The token URL in a service account is ignored: callers bring service accounts, and it could name any host.
        self._fetch = fetch
        self._clock = clock
        self._token_url = token_url
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def token(self, secret: str) -> str:
        """Return the access token for a service account's JSON; any other secret is an access token already.

        UpstreamRefused if the JSON is not a service account or Google refuses it; UpstreamFailed if the token service
        fails.
        """
        if not is_service_account(secret):
            return secret
        entry = self._entry(hashlib.sha256(secret.encode()).hexdigest())
        if self._clock.monotonic() < entry.until:
            return entry.token
        with entry.lock:
            if self._clock.monotonic() >= entry.until:
                started = self._clock.monotonic()
                entry.token, lifetime = self._request(_read_account(secret))
                entry.until = started + lifetime - EXPIRY_MARGIN_S
            return entry.token

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.setdefault(name, _Entry())
        self._entries.move_to_end(name)
        if len(self._entries) > CACHE_SIZE:
            self._entries.popitem(last=False)
        return entry

    def _request(self, account: dict[str, Any]) -> tuple[str, float]:
        """Return a new token and its lifetime in seconds."""
        status, body = self._fetch(
            self._token_url, FORM_HEADERS, b"grant_type=" + _quoted(GRANT) + b"&assertion=" + self._sign(account)
        )
        if status >= 500 or status == 429:
            raise UpstreamFailed("The provider's token service failed.", upstream_status=status)
        if status != 200:
            raise UpstreamRefused("The provider refused the gateway's service account.", upstream_status=status)
        try:
            wire = orjson.loads(body)
            return str(wire["access_token"]), float(wire.get("expires_in", LIFETIME_S))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            raise UpstreamFailed("The provider's token service returned no token.", upstream_status=status) from None

    def _sign(self, account: dict[str, Any]) -> bytes:
        now = self._clock.now_us() // SECOND_US
        email = account["client_email"]
        claims = {"iss": email, "scope": SCOPE, "aud": self._token_url, "iat": now, "exp": now + LIFETIME_S}
        header = {"alg": "RS256", "typ": "JWT"}
        if account.get("private_key_id"):
            header["kid"] = str(account["private_key_id"])
        pem = account["private_key"]
        try:
            if len(pem) > MAX_KEY_LENGTH:
                raise ValueError
            # The lazy modules are loaded here and not in the thread.
            read_key = jwk.RSAKey.import_key
            encode = jwt.encode
            token: bytes = compute(lambda: encode(header, claims, read_key(pem), algorithms=["RS256"])).encode()
            return token
        except (jose_errors.JoseError, ValueError, TypeError):
            raise UpstreamRefused("The private key of the service account cannot be read.") from None


def is_service_account(secret: str) -> bool:
    """Return whether a credential is the JSON file of a service account."""
    return secret.lstrip().startswith("{")


def _read_account(secret: str) -> dict[str, Any]:
    try:
        account: dict[str, Any] = orjson.loads(secret)
    except orjson.JSONDecodeError:
        raise UpstreamRefused("The service account is not JSON.") from None
    if not all(isinstance(account.get(name), str) and account[name] for name in ("client_email", "private_key")):
        raise UpstreamRefused("The service account lacks client_email or private_key.")
    return account


def _quoted(text: str) -> bytes:
    return text.replace(":", "%3A").encode()


# Workload Identity Federation: tokens of another identity provider, exchanged at Google's Security Token Service.
#
# Wire facts: AIP-4117, "External account credentials"; RFC 8693 (token exchange); the STS reference, `v1/token`; the
# IAM Service Account Credentials reference, `generateAccessToken`.

CREDENTIAL_FILE = "file of GOOGLE_APPLICATION_CREDENTIALS"
STS = "Google Security Token Service"
STS_URL = "https://sts.googleapis.com/v1/token"
IMPERSONATION = "service account impersonation of Google"
SUBJECT_SOURCE = "source of the subject token"
EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
AWS = "aws1"
CALLER_IDENTITY = "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
AUDIENCE_HEADER = "x-goog-cloud-target-resource"
UNKNOWN_CREDENTIAL_SOURCE = (
    "The credential_source of the credential file needs one of file, url, or environment_id aws1."
)


class ExternalAccount:
    """Exchanges the subject token of a configuration file of type external_account."""

    def __init__(self, calls: IdentityCalls, environment: Mapping[str, str]) -> None:
        self._calls = calls
        self._roles = RoleCredentials(calls, environment)
        self._environment = environment

    def fetch(self, values: Mapping[str, Any], text: str) -> IssuedToken:
        """Return the token for the values of a configuration file. IdentityFailed."""
        impersonated = values.get("service_account_impersonation_url")
        place, subject = self._subject_of(values)
        form = {
            "grant_type": EXCHANGE_GRANT,
            "audience": text_in(CREDENTIAL_FILE, values, "audience"),
            "scope": SCOPE,
            "requested_token_type": ACCESS_TOKEN,
            "subject_token": subject,
            "subject_token_type": text_in(CREDENTIAL_FILE, values, "subject_token_type"),
        }
        headers = dict(FORM_HEADERS)
        if values.get("client_id"):
            pair = f"{values['client_id']}:{values.get('client_secret', '')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif values.get("workforce_pool_user_project"):
            form["options"] = orjson.dumps({"userProject": values["workforce_pool_user_project"]}).decode()
        url = values.get("token_url") or STS_URL
        answer = self._calls.fetch(STS, "POST", str(url), headers, urlencode(form).encode())
        token = text_in(STS, answer, "access_token")
        found = project_in(values, "quota_project_id")
        sent = quota_headers(found)
        if impersonated:
            return self._impersonate(str(impersonated), values, token, IssuedToken("", 0, place, found, sent))
        lifetime_s = seconds_in(STS, answer, "expires_in") if "expires_in" in answer else LIFETIME_S
        return IssuedToken(token, lifetime_s, f"federation with a {place}", found, sent)

    def _impersonate(self, url: str, values: Mapping[str, Any], token: str, base: IssuedToken) -> IssuedToken:
        """Exchange the federated token for one of a service account."""
        options = values.get("service_account_impersonation")
        chosen = options.get("token_lifetime_seconds") if isinstance(options, dict) else None
        lifetime_s = chosen if isinstance(chosen, int) else LIFETIME_S
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        body = orjson.dumps({"delegates": None, "scope": [SCOPE], "lifetime": f"{lifetime_s}s"})
        answer = self._calls.fetch(IMPERSONATION, "POST", url, headers, body)
        left_s = self._calls.seconds_until(IMPERSONATION, answer.get("expireTime"))
        token = text_in(IMPERSONATION, answer, "accessToken")
        source = f"federation with a {base.source}, as a service account"
        return IssuedToken(token, left_s, source, base.settings, base.headers)

    def _subject_of(self, values: Mapping[str, Any]) -> tuple[str, str]:
        """Return what kind of source the subject token has, and the token."""
        source = values.get("credential_source")
        if not isinstance(source, dict):
            raise IdentityFailed(UNKNOWN_CREDENTIAL_SOURCE)
        if source.get("environment_id") == AWS:
            return "role of AWS", self._sign_caller_identity(source, text_in(CREDENTIAL_FILE, values, "audience"))
        if isinstance(source.get("file"), str):
            return "token file", _unpack(source, read_file("credential_source", source["file"]))
        if isinstance(source.get("url"), str):
            given = source.get("headers")
            headers = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
            answer = self._calls.call(SUBJECT_SOURCE, "GET", source["url"], headers)
            if answer.status != 200:
                raise refusal(SUBJECT_SOURCE, answer)
            return "token at a URL", _unpack(source, answer.body.decode("utf-8", "replace").strip())
        raise IdentityFailed(UNKNOWN_CREDENTIAL_SOURCE)

    def _sign_caller_identity(self, source: Mapping[str, Any], audience: str) -> str:
        """Return a signed request for GetCallerIdentity, which Google sends to AWS to learn the role."""
        region = self._roles.find_region()
        url = str(source.get("regional_cred_verification_url") or CALLER_IDENTITY).replace("{region}", region)
        scope = CredentialScope(region, "sts", self._calls.clock.now())
        key = self._roles.fetch_key()
        signed = sign("POST", url, {AUDIENCE_HEADER: audience}, b"", key, scope)
        signed["host"] = url.partition("://")[2].partition("/")[0].partition("?")[0]
        fields = [{"key": name, "value": value} for name, value in signed.items()]
        return quote(orjson.dumps({"url": url, "method": "POST", "headers": fields}).decode(), safe="")


def project_in(values: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the settings with the project that a file or an answer names; {} for none."""
    project = values.get(name)
    if isinstance(project, str) and project:
        return {"project": project}
    return {}


def quota_headers(project: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that bill calls to this project."""
    if project:
        return {"x-goog-user-project": project["project"]}
    return {}


def _unpack(source: Mapping[str, Any], text: str) -> str:
    """Return the subject token in a text, or in the member of its JSON that the `format` names."""
    form = source.get("format")
    if isinstance(form, dict) and form.get("type") == "json":
        return text_in(
            SUBJECT_SOURCE, read_object(SUBJECT_SOURCE, text.encode()), str(form.get("subject_token_field_name"))
        )
    return text_in(SUBJECT_SOURCE, {"token": text}, "token")


FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
WELL_KNOWN = "application_default_credentials.json"
HOST_VARIABLE = "GCE_METADATA_HOST"
HOST = "metadata.google.internal"
FLAVOR = "metadata-flavor"
SERVER = "Google metadata server"
TOKEN_SERVICE = "Google token service"
TOKEN_PATH = "instance/service-accounts/default/token"
PROJECT_PATH = "project/project-id"
REREAD_INTERVAL_S = 3600.0  # the file of a service account may be replaced
UNKNOWN_CREDENTIAL_TYPE = "The type of the credential file is not supported; supported are {}."


class GoogleIdentity:
    """Tokens for Vertex AI and the Gemini API.

    GOOGLE_APPLICATION_CREDENTIALS decides, then the file of `gcloud auth application-default login`, then the metadata
    server of the virtual machine or the GKE node.
    """

    settings: tuple[str, ...] = ()
    auth = "google-oauth"

    def __init__(self, calls: IdentityCalls, environment: Mapping[str, str]) -> None:
        self._calls = calls
        self._environment = environment
        self._external = ExternalAccount(calls, environment)
        self._project = ""
        self._readers = {
            "service_account": self._service_account,
            "authorized_user": self._authorized_user,
            "external_account": self._external.fetch,
        }

    def fetch(self, settings: Mapping[str, str]) -> IssuedToken:
        """Return an access token, or the JSON of a service account, which the protocol exchanges. IdentityFailed."""
        named = self._environment.get(FILE_VARIABLE, "")
        if named:
            return self._from_file(named, FILE_VARIABLE)
        path = self._well_known()
        if path is not None and path.is_file():
            return self._from_file(str(path), "gcloud's application default credentials")
        return self._from_server()

    def is_rejected(self, reply: UpstreamReply) -> bool:
        return reply.status == 401

    def _well_known(self) -> Path | None:
        """Return where gcloud stores the credentials of its user; None if there is no home folder."""
        folder = self._environment.get("CLOUDSDK_CONFIG", "")
        if folder:
            return Path(folder) / WELL_KNOWN
        home = self._environment.get("HOME", "")
        return Path(home) / ".config" / "gcloud" / WELL_KNOWN if home else None

    def _from_file(self, path: str, name: str) -> IssuedToken:
        text = read_file(name, path)
        values = read_object(f"file of {name}", text.encode())
        reader = self._readers.get(str(values.get("type")))
        if reader is None:
            raise IdentityFailed(UNKNOWN_CREDENTIAL_TYPE.format(", ".join(self._readers)))
        return reader(values, text)

    def _service_account(self, values: Mapping[str, Any], text: str) -> IssuedToken:
        return IssuedToken(text, REREAD_INTERVAL_S, "service account file", project_in(values, "project_id"))

    def _authorized_user(self, values: Mapping[str, Any], text: str) -> IssuedToken:
        """Return a token for the refresh token of a person, for gateways on a developer's machine."""
        place = "credential file"
        names = ("client_id", "client_secret", "refresh_token")
        form = {"grant_type": "refresh_token", **{name: text_in(place, values, name) for name in names}}
        answer = self._calls.fetch(TOKEN_SERVICE, "POST", TOKEN_URL, FORM_HEADERS, urlencode(form).encode())
        project = project_in(values, "quota_project_id")
        lifetime_s = seconds_in(TOKEN_SERVICE, answer, "expires_in")
        token = text_in(TOKEN_SERVICE, answer, "access_token")
        return IssuedToken(token, lifetime_s, "gcloud user credentials", project, quota_headers(project))

    def _from_server(self) -> IssuedToken:
        answer = self._calls.call(SERVER, "GET", f"{self._at(TOKEN_PATH)}?scopes={quote(SCOPE, safe='')}", _headers())
        # A captive portal or a proxy answers as well; only the metadata server has this header.
        if answer.headers.get(FLAVOR) != "Google":
            raise IdentityFailed(f"The {SERVER} did not answer; another server uses its address.")
        if answer.status != 200:
            raise refusal(SERVER, answer)
        values = read_object(SERVER, answer.body)
        token = text_in(SERVER, values, "access_token")
        return IssuedToken(token, seconds_in(SERVER, values, "expires_in"), SERVER, self._server_project())

    def _server_project(self) -> dict[str, str]:
        """Return the project of the virtual machine or cluster, which never changes; {} where it is not known."""
        if not self._project:
            try:
                answer = self._calls.call(SERVER, "GET", self._at(PROJECT_PATH), _headers())
            except IdentityFailed:
                return {}
            if answer.status == 200 and answer.body.isascii():
                self._project = answer.body.decode().strip()
        return project_in({"project": self._project}, "project")

    def _at(self, path: str) -> str:
        host = self._environment.get(HOST_VARIABLE, "") or HOST
        return f"http://{host}/computeMetadata/v1/{path}"


def _headers() -> dict[str, str]:
    return {FLAVOR: "Google"}
