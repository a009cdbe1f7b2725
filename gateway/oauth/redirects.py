"""Where an application may be sent back to: which addresses may be registered, and which one a request may name."""

from urllib.parse import SplitResult, urlsplit

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
LONGEST = 1_000
# Schemes of programs that own none with a dot, which RFC 8252 (7.1) wants. What is in no list could run in a browser.
PROGRAMS = frozenset(
    (
        *("cursor", "vscode", "vscode-insiders", "code-oss", "vscodium", "windsurf", "windsurf-next", "claude", "zed"),
        *("chatgpt", "codex", "warp", "raycast", "goose", "kiro", "trae", "antigravity", "jetbrains", "lmstudio"),
    )
)


def problem_of(uri: str) -> str:
    """Why an address may not be registered; "" where it may: https, http on loopback, a program's own scheme."""
    if not 0 < len(uri) <= LONGEST:
        return f"has 1 to {LONGEST} characters"
    if not (uri.isascii() and uri.isprintable()) or any(sign in uri for sign in " \\\"<>^`{|}'"):
        return "has characters that are not of an address"
    parts = _split(uri)
    if parts is None:
        return "is not an absolute address"
    if "#" in uri:
        return "has a fragment"
    if parts.username is not None or parts.password is not None:
        return "names a user"
    return _problem_of_scheme(parts)


def _problem_of_scheme(parts: SplitResult) -> str:
    scheme = parts.scheme
    host = parts.hostname
    if scheme == "https":
        if host:
            return ""
        return "names no host"
    if scheme == "http":
        if host in LOOPBACK:
            return ""
        return "is not on https; http is for loopback addresses only"
    if "." in scheme or scheme in PROGRAMS:
        return ""
    return "has a scheme that is not let in"


def matches(registered: str, given: str) -> bool:
    """Whether a request may name `given`: the registered address to the letter, on loopback with any port."""
    if registered == given:
        return True
    if problem_of(given):
        return False
    ours = _split(registered)
    theirs = _split(given)
    return (
        ours is not None
        and theirs is not None
        and ours.scheme == theirs.scheme == "http"
        and ours.hostname == theirs.hostname
        and ours.hostname in LOOPBACK
        and (ours.path or "/", ours.query) == (theirs.path or "/", theirs.query)
    )


def host_of(uri: str) -> str:
    """What people are shown of an address: its host, or the scheme of a program."""
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
