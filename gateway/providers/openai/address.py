"""Where a call of this format goes: URL and headers, with the credential where the provider's entry wants it."""

from urllib.parse import quote

from gateway.errors import NotSupported
from gateway.providers import quirks
from gateway.providers.protocol import Target

SIGNED = "sigv4"


def address_of(target: Target, path: str) -> tuple[str, dict[str, str]]:
    """URL of `path` (with its leading slash) at the target, and headers. NotSupported for signed requests."""
    base, _, query = target.address.partition("?")
    arguments = [query] if query else []
    version = target.settings.get("api_version", "")
    if version and quirks.API_VERSION_QUERY in target.quirks:
        arguments.append(f"api-version={quote(version, safe='')}")
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
