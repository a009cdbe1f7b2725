"""Application Default Credentials without a stored key: tokens of the metadata server, and of credential files.

Wire facts: Google Cloud documentation, "How Application Default Credentials works", "Predefined VM metadata keys" (the
metadata server), AIP-4110 and AIP-4117; https://developers.google.com/identity/protocols/oauth2/web-server#offline
(refresh tokens).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from gateway.errors import IdentityFailed
from gateway.providers.google.external_account import ExternalAccount, project_in, quota_headers
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
ANOTHER = "The type of the credential file is not supported; supported are {}."


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
            raise IdentityFailed(ANOTHER.format(", ".join(self._readers)))
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
