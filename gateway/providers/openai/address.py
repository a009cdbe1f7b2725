"""URL and headers of a call in this format, with the credential where the provider's entry wants it."""

from collections.abc import Callable
from urllib.parse import quote

from gateway.errors import NotSupported
from gateway.providers import quirks
from gateway.providers.protocol import Target, Way

OAUTH = "google-oauth"
SIGNED = "sigv4"
NAMED_IN_BODY = "/responses"

Tokens = Callable[[str], str]


def way_of(target: Target, path: str, stream: bool, tokens: Tokens | None = None) -> Way:
    """Where POSTs of JSON to `path` go, and their headers. Errors as `address_of`.

    Made once for a target, unless its key may be one that is exchanged for tokens, which have an end.
    """
    way = target.memo.get((path, stream))
    if way is None:
        url, headers = address_of(target, path, tokens)
        headers["content-type"] = "application/json"
        if stream:
            headers["accept"] = "text/event-stream"
        else:
            headers["accept"] = "application/json"
        way = Way(url, headers)
        if is_lasting(target):
            target.memo[path, stream] = way
    return way


def is_lasting(target: Target) -> bool:
    """Whether what `way_of` gives may be kept."""
    return target.provider.auth != OAUTH


def address_of(target: Target, path: str, tokens: Tokens | None = None) -> tuple[str, dict[str, str]]:
    """URL of `path` (with its leading slash) at the target, and headers.

    `tokens` makes an access token of a service account's JSON and may fail as UpstreamRefused or UpstreamFailed.
    NotSupported for signed requests, and for a service account without `tokens`: it never leaves as it is.
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
    """The base for a dated version of the service: the model stands in the path, but for what names it in the body."""
    root = base.rstrip("/").removesuffix(target.provider.version_path).rstrip("/") + "/openai"
    if path == NAMED_IN_BODY:
        return root
    return f"{root}/deployments/{quote(target.mapping.external_id, safe='')}"
