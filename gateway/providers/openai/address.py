"""Builds URL and headers of a call, with the credential in the place that the provider's entry defines."""

from collections.abc import Callable
from urllib.parse import quote

from gateway.errors import NotSupported
from gateway.providers import quirks
from gateway.providers.protocol import CallEndpoint, Target

OAUTH = "google-oauth"
SIGNED = "sigv4"
NAMED_IN_BODY = ("/responses", "/files", "/batches")

Tokens = Callable[[str], str]


def endpoint_of(target: Target, path: str, stream: bool, tokens: Tokens | None = None) -> CallEndpoint:
    """Return the URL and headers for POSTs of JSON to `path`. Raises the errors of `address_of`.

    The value is cached in the target, unless its key is exchanged for access tokens, which expire.
    """
    endpoint = target.memo.get((path, stream))
    if endpoint is None:
        url, headers = address_of(target, path, tokens)
        headers["content-type"] = "application/json"
        if stream:
            headers["accept"] = "text/event-stream"
        else:
            headers["accept"] = "application/json"
        endpoint = CallEndpoint(url, headers)
        if is_lasting(target):
            target.memo[path, stream] = endpoint
    return endpoint


def is_lasting(target: Target) -> bool:
    """Whether the value of `endpoint_of` may be cached."""
    return target.provider.auth != OAUTH


def address_of(target: Target, path: str, tokens: Tokens | None = None) -> tuple[str, dict[str, str]]:
    """Return the URL of `path` (with its leading slash) at the target, and the headers.

    `tokens` exchanges a service account's JSON for an access token and may raise UpstreamRefused or UpstreamFailed.
    NotSupported for signed requests, and for a service account without `tokens`, because its JSON must never be sent.
    """
    base, _, query = target.address.partition("?")
    arguments = [query] if query else []
    version = target.settings.get("api_version", "")
    if version and quirks.API_VERSION_QUERY in target.quirks:
        arguments.append(f"api-version={quote(version, safe='')}")
    if version[:1].isdigit() and quirks.DEPLOYMENT_PATH in target.quirks:
        base = _dated(base, path, target)
    headers = {name.lower(): value for name, value in target.provider.headers.items()}
    auth = target.provider.auth
    secret = target.credential.secret
    is_account = auth == OAUTH and secret.lstrip().startswith("{")
    if auth == SIGNED or (is_account and tokens is None):
        raise NotSupported(f"Provider {target.provider.id} cannot be reached by this protocol.")
    if secret and auth.startswith("query:"):
        arguments.append(f"{auth[len('query:') :]}={quote(secret, safe='')}")
    elif secret and auth in ("bearer", OAUTH):
        headers["authorization"] = f"Bearer {tokens(secret) if is_account and tokens else secret}"
    elif secret and auth != "none":
        headers[auth.lower()] = secret
    url = base.rstrip("/") + path
    return (f"{url}?{'&'.join(arguments)}" if arguments else url), headers


def _dated(base: str, path: str, target: Target) -> str:
    """Return the base URL for a dated API version. The path contains the model, except for APIs with the model in the
    body."""
    root = base.rstrip("/").removesuffix(target.provider.version_path).rstrip("/") + "/openai"
    if path.startswith(NAMED_IN_BODY):
        return root
    return f"{root}/deployments/{quote(target.mapping.external_id, safe='')}"
