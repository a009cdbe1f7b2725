"""Scopes of tokens, the resources for which tokens are issued (RFC 8707), and the paths that accept them."""

PATH = "/mcp"
TOOLS = "mcp:tools"
# The actions that each scope allows to an application, as the consent page shows them.
ABILITIES = {
    TOOLS: "call tools: use models for text and images, and read usage reports",
    "mcp:resources": "read resources (there are none yet)",
    "mcp:prompts": "read prompts (there are none yet)",
    "offline_access": "renew its access without asking again",
}
SCOPES = tuple(ABILITIES)
# OpenID Connect's scope for refresh tokens. Applications get these in any case; many ask for the scope nevertheless.
OFFLINE = "offline_access"
# The scopes of a request that names none.
DEFAULT_SCOPES = tuple(scope for scope in SCOPES if scope != OFFLINE)
# The scope of coding agents that sign in as devices. Their tokens are for the gateway itself, at these paths only.
AGENT = "agent"
SETTINGS_PATH = "/managed/settings"
USAGE_PATH = "/api/oauth/usage"  # of spending limits
SIGNALS = ("metrics", "logs", "traces")
AGENT_PATHS = frozenset(
    (
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        SETTINGS_PATH,
        USAGE_PATH,
        *(f"/v1/{signal}" for signal in SIGNALS),
    )
)


def resource_of(base_url: str) -> str:
    """Return the URL of the resource that accepts the tokens, below the public base URL."""
    return base_url.rstrip("/") + PATH


def audience_at(path: str, base_url: str) -> str:
    """Return the audience of the access tokens that `path` accepts, "" if it accepts none."""
    if path == PATH:
        return resource_of(base_url)
    if path in AGENT_PATHS:
        return base_url.rstrip("/")
    return ""


def names_resource(text: str, base_url: str) -> bool:
    """Return whether a `resource` parameter names the resource below `base_url`.

    A trailing slash and the URL of the whole server are accepted, because clients send both.
    """
    base = base_url.rstrip("/")
    return text.rstrip("/") in (base + PATH, base)


def read_scope(text: str) -> tuple[str, ...] | None:
    """Return the requested scopes in the order of SCOPES; DEFAULT_SCOPES if the parameter names none of these.

    Unknown scopes are ignored (RFC 6749, section 3.3), because applications request scopes of other servers. Returns
    None if all requested scopes are unknown.
    """
    requested = set(text.split())
    if requested <= {OFFLINE}:
        requested |= set(DEFAULT_SCOPES)
    return tuple(scope for scope in SCOPES if scope in requested) or None


def narrow_scope(text: str, granted: str) -> tuple[str, ...] | None:
    """Return the scopes of a refreshed access token: those of the grant that the request names, all if it names none.

    None if it asks for a scope that was not granted, or for unknown ones alone. OFFLINE, which any grant includes, and
    unknown scopes beside others are ignored, as at the authorization.
    """
    known = tuple(granted.split())
    words = set(text.split())
    if words <= {OFFLINE}:
        return known
    asked = words & set(DEFAULT_SCOPES)
    if not asked or not asked <= set(known):
        return None
    return tuple(scope for scope in known if scope in asked or scope == OFFLINE)
