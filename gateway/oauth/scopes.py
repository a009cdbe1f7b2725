"""What tokens are good for: scopes, and the resource that they are made for (RFC 8707)."""

PATH = "/mcp"
TOOLS = "mcp:tools"
SCOPES = (TOOLS, "mcp:resources", "mcp:prompts")


def resource_of(base_url: str) -> str:
    """The resource under the address that callers see: where tokens are taken."""
    return base_url.rstrip("/") + PATH


def names_resource(text: str, base_url: str) -> bool:
    """Whether a `resource` parameter means the one under `base_url`: it, with a slash too many, or its server."""
    base = base_url.rstrip("/")
    return text.rstrip("/") in (base + PATH, base)


def read_scope(text: str) -> tuple[str, ...] | None:
    """The scopes that a parameter asks for, in our order; all without one. Those that are not known are left out, as
    applications ask for what other servers have (RFC 6749, 3.3); None where no other is asked for."""
    requested = set(text.split())
    if not requested:
        return SCOPES
    return tuple(one for one in SCOPES if one in requested) or None
