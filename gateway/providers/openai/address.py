"""Where a call of this format goes: URL and headers, with the credential where the provider's entry wants it."""

from urllib.parse import quote

from gateway.errors import NotSupported
from gateway.providers import quirks
from gateway.providers.protocol import Target

SIGNED = "sigv4"
NAMED_IN_BODY = "/responses"


def address_of(target: Target, path: str) -> tuple[str, dict[str, str]]:
    """URL of `path` (with its leading slash) at the target, and headers. NotSupported for signed requests."""
    base, _, query = target.address.partition("?")
    arguments = [query] if query else []
    version = target.settings.get("api_version", "")
    if version and quirks.API_VERSION_QUERY in target.quirks:
        arguments.append(f"api-version={quote(version, safe='')}")
    if version[:1].isdigit() and quirks.DEPLOYMENT_PATH in target.quirks:
        base = _dated(base, path, target)
    headers = {name.lower(): value for name, value in target.provider.headers.items()}
    auth, secret = target.provider.auth, target.credential.secret
    if auth == SIGNED:
        raise NotSupported(f"Provider {target.provider.id} cannot be reached by this protocol.")
    if secret and auth.startswith("query:"):
        arguments.append(f"{auth[len('query:') :]}={quote(secret, safe='')}")
    elif secret and auth in ("bearer", "google-oauth"):
        headers["authorization"] = f"Bearer {secret}"
    elif secret and auth != "none":
        headers[auth.lower()] = secret
    url = base.rstrip("/") + path
    return (f"{url}?{'&'.join(arguments)}" if arguments else url), headers


def _dated(base: str, path: str, target: Target) -> str:
    """The base for a dated version of the service: the model stands in the path, but for what names it in the body."""
    root = base.rstrip("/").removesuffix(target.provider.version_path).rstrip("/") + "/openai"
    return root if path == NAMED_IN_BODY else f"{root}/deployments/{quote(target.mapping.external_id, safe='')}"
