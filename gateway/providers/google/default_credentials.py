"""Application Default Credentials without a stored key: tokens of the metadata server, and of credential files.

Wire facts: Google Cloud documentation, "How Application Default Credentials works", "Predefined VM metadata keys" (the
metadata server), AIP-4110 and AIP-4117; https://developers.google.com/identity/protocols/oauth2/web-server#offline
(refresh tokens).
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from gateway.errors import IdentityFailed
from gateway.providers.aws.role_credentials import RoleCredentials
from gateway.providers.bedrock.signing import CredentialScope, sign
from gateway.providers.google.service_account_tokens import SCOPE, TOKEN_URL
from gateway.providers.identities.identity_calls import (
    FORM_HEADERS,
    IdentityCalls,
    read_file,
    read_object,
    refusal,
    seconds_in,
    text_in,
)
from gateway.providers.identities.upstream_identity import IssuedToken
from gateway.providers.protocol import UpstreamReply

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
LIFETIME_S = 3600
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
