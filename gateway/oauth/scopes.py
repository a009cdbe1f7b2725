"""Scopes of tokens, and the resource for which tokens are issued (RFC 8707)."""

PATH = "/mcp"
TOOLS = "mcp:tools"
SCOPES = (TOOLS, "mcp:resources", "mcp:prompts")


def resource_of(base_url: str) -> str:
    """Return the URL of the resource that accepts the tokens, below the public base URL."""
    return base_url.rstrip("/") + PATH


def names_resource(text: str, base_url: str) -> bool:
    """Return whether a `resource` parameter names the resource below `base_url`.

    A trailing slash and the URL of the whole server are accepted, because clients send both.
    """
    base = base_url.rstrip("/")
    return text.rstrip("/") in (base + PATH, base)


def read_scope(text: str) -> tuple[str, ...] | None:
    """Return the requested scopes in the order of SCOPES; all scopes if the parameter is empty.

    Unknown scopes are ignored (RFC 6749, section 3.3), because applications request scopes of other servers. Returns
    None if all requested scopes are unknown.
    """
    requested = set(text.split())
    if not requested:
        return SCOPES
    return tuple(scope for scope in SCOPES if scope in requested) or None
