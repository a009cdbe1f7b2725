"""Redirect URIs: which URIs an application may register, and which registered URI a request may name."""

from urllib.parse import SplitResult, urlsplit

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
MAX_URI_LENGTH = 1_000
# Schemes of programs without the dot that RFC 8252, section 7.1 requires. Other schemes could run in a browser.
PROGRAMS = frozenset(
    (
        *("cursor", "vscode", "vscode-insiders", "code-oss", "vscodium", "windsurf", "windsurf-next", "claude", "zed"),
        *("chatgpt", "codex", "warp", "raycast", "goose", "kiro", "trae", "antigravity", "jetbrains", "lmstudio"),
    )
)


def problem_of(uri: str) -> str:
    """Return why a URI cannot be registered, "" if it can: https, http on loopback, or a program's private scheme."""
    if not 0 < len(uri) <= MAX_URI_LENGTH:
        return f"must have 1 to {MAX_URI_LENGTH} characters"
    if not (uri.isascii() and uri.isprintable()) or any(character in uri for character in " \\\"<>^`{|}'"):
        return "has characters that are not allowed in a URI"
    parts = _split(uri)
    if parts is None:
        return "is not an absolute URI"
    if "#" in uri:
        return "has a fragment"
    if parts.username is not None or parts.password is not None:
        return "has a user name"
    return _problem_of_scheme(parts)


def _problem_of_scheme(parts: SplitResult) -> str:
    scheme = parts.scheme
    host = parts.hostname
    if scheme == "https":
        if host:
            return ""
        return "has no host"
    if scheme == "http":
        if host in LOOPBACK:
            return ""
        return "does not use https; http is for loopback addresses only"
    if "." in scheme or scheme in PROGRAMS:
        return ""
    return "has a scheme that is not allowed"


def matches(registered: str, requested: str) -> bool:
    """Return whether `requested` is the registered URI. On loopback the port may differ (RFC 8252, section 7.3)."""
    if registered == requested:
        return True
    if problem_of(requested):
        return False
    ours = _split(registered)
    theirs = _split(requested)
    return (
        ours is not None
        and theirs is not None
        and ours.scheme == theirs.scheme == "http"
        and ours.hostname == theirs.hostname
        and ours.hostname in LOOPBACK
        and (ours.path or "/", ours.query) == (theirs.path or "/", theirs.query)
    )


def host_of(uri: str) -> str:
    """Return the host of a URI or the scheme of a program, for display."""
    parts = _split(uri)
    if parts is None:
        return ""
    if parts.scheme == "https":
        return parts.netloc
    if parts.scheme == "http":
        return f"this computer ({parts.hostname})"
    return f"{parts.scheme}:"


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme:
        return parts
    return None
