"""Tokens of Microsoft Entra ID for Azure OpenAI and Azure AI Foundry.

Wire facts: Microsoft identity platform, "OAuth 2.0 client credentials flow" (secret and federated credential); Azure
documentation, "How to use managed identities on a virtual machine to acquire an access token" (IMDS), "Managed
identities in App Service" (REST endpoint), "Microsoft Entra Workload ID" (variables of the AKS webhook).
"""

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from gateway.errors import IdentityFailed
from gateway.providers.identities.upstream_identity import (
    FORM_HEADERS,
    IdentityCalls,
    IssuedToken,
    read_object,
    read_token_file,
    refusal,
    seconds_in,
    text_in,
)
from gateway.providers.protocol import UpstreamReply

ENTRA = "Microsoft Entra token service"
AUTHORITY = "https://login.microsoftonline.com"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SCOPE = "https://cognitiveservices.azure.com/.default"
SUFFIX = "/.default"
TOKEN_FILE = "AZURE_FEDERATED_TOKEN_FILE"
IMDS = "managed identity service of Azure"
IMDS_ADDRESS = "http://169.254.169.254"
IMDS_PATH = "/metadata/identity/oauth2/token"
IMDS_VERSION = "2018-02-01"
APP_SERVICE = "managed identity service of App Service"
APP_SERVICE_VERSION = "2019-08-01"
INCOMPLETE = "AZURE_CLIENT_ID and AZURE_TENANT_ID are needed with {}."
# Statuses of the service while it is updated or busy, beside 5xx ("Retry guidance" of the documentation).
RETRIED_STATUSES = (404, 410, 429)
ATTEMPTS = 2  # a managed identity service that is busy answers the second time


class EntraIdentity:
    """A client secret of the environment decides, then a federated token file, then a managed identity."""

    settings: tuple[str, ...] = ("token_scope",)
    auth = "bearer"

    def __init__(self, calls: IdentityCalls, environment: Mapping[str, str]) -> None:
        self._calls = calls
        self._environment = environment

    def fetch(self, settings: Mapping[str, str]) -> IssuedToken:
        """Return a token for the provider's scope. IdentityFailed."""
        scope = settings.get("token_scope") or SCOPE
        read = self._environment.get
        if secret := read("AZURE_CLIENT_SECRET", ""):
            return self._exchange(scope, {"client_secret": secret}, "AZURE_CLIENT_SECRET", "client secret")
        if path := read(TOKEN_FILE, ""):
            assertion = read_token_file(TOKEN_FILE, path)
            proof = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
            return self._exchange(scope, proof, TOKEN_FILE, "workload identity")
        if read("IDENTITY_ENDPOINT", "") and read("IDENTITY_HEADER", ""):
            headers = {"x-identity-header": read("IDENTITY_HEADER", "")}
            return self._managed(APP_SERVICE, read("IDENTITY_ENDPOINT", ""), APP_SERVICE_VERSION, headers, scope)
        base = read("AZURE_POD_IDENTITY_AUTHORITY_HOST", "") or IMDS_ADDRESS
        url = f"{base.rstrip('/')}{IMDS_PATH}"
        return self._managed(IMDS, url, IMDS_VERSION, {"metadata": "true"}, scope)

    def is_rejected(self, reply: UpstreamReply) -> bool:
        return reply.status == 401

    def _exchange(self, scope: str, proof: Mapping[str, str], variable: str, kind: str) -> IssuedToken:
        tenant = self._environment.get("AZURE_TENANT_ID", "")
        client = self._environment.get("AZURE_CLIENT_ID", "")
        if not tenant or not client:
            raise IdentityFailed(INCOMPLETE.format(variable))
        authority = self._environment.get("AZURE_AUTHORITY_HOST", "") or AUTHORITY
        if "://" not in authority:
            authority = f"https://{authority}"
        url = f"{authority.rstrip('/')}/{quote(tenant, safe='')}/oauth2/v2.0/token"
        form = {"grant_type": "client_credentials", "client_id": client, "scope": scope, **proof}
        answer = self._calls.fetch(ENTRA, "POST", url, FORM_HEADERS, urlencode(form).encode())
        token = text_in(ENTRA, answer, "access_token")
        return IssuedToken(token, seconds_in(ENTRA, answer, "expires_in"), f"Microsoft Entra {kind}")

    def _managed(self, place: str, url: str, version: str, headers: Mapping[str, str], scope: str) -> IssuedToken:
        arguments = {"api-version": version, "resource": scope.removesuffix(SUFFIX)}
        if client := self._environment.get("AZURE_CLIENT_ID", ""):
            arguments["client_id"] = client
        for _ in range(ATTEMPTS):
            answer = self._calls.call(place, "GET", f"{url}?{urlencode(arguments)}", headers)
            if answer.status < 500 and answer.status not in RETRIED_STATUSES:
                break
        if answer.status != 200:
            raise refusal(place, answer)
        values = read_object(place, answer.body)
        token = text_in(place, values, "access_token")
        if values.get("expires_in"):
            return IssuedToken(token, seconds_in(place, values, "expires_in"), place)
        return IssuedToken(token, self._calls.seconds_until(place, values.get("expires_on")), place)
